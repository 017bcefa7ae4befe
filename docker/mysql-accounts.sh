# shellcheck shell=bash
# Read by the MySQL image's entrypoint when it makes a new volume: the two accounts of docs/database.md.
docker_process_sql <<SQL
CREATE USER 'cupo'@'%' IDENTIFIED BY '${CUPO_PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE ON cupo.* TO 'cupo'@'%';
CREATE USER 'cupo_migrate'@'%' IDENTIFIED BY '${CUPO_MIGRATION_PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON cupo.* TO 'cupo_migrate'@'%';
SQL
