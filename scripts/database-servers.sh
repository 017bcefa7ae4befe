# Sourced by scripts/test after environment.sh: gets the programs that tests/installations.py looks for.
# shellcheck shell=bash

# The server programs lie in sbin, which an ordinary user's PATH leaves out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say_how_to_go_on_without() {
    fail "$1 cannot be installed here: give a server by CUPO_TEST_DATABASE_URL=mysql://user:password@host:port/" \
        "whose account may create databases"
}

# The core packages bring the programs and no service, which would be started at once and at every boot.
get_mariadb() {
    command -v mariadbd >/dev/null && command -v mariadb-install-db >/dev/null && return
    install_packages mariadb-server-core mariadb-client-core || say_how_to_go_on_without MariaDB
}

# Debian stable has no MySQL: a Debian unstable with nothing but MySQL is made in a folder of the cache. To get a
# newer MySQL, remove the folder.
get_mysql() {
    local cache=${XDG_CACHE_HOME:-$HOME/.cache}/cupo lock
    [[ -x $cache/mysql/usr/sbin/mysqld ]] && return
    mkdir -p "$cache"
    exec {lock}>"$cache/mysql.lock"
    flock "$lock"
    [[ -x $cache/mysql/usr/sbin/mysqld ]] || make_mysql_folder "$cache"
    exec {lock}>&-
}

make_mysql_folder() {
    local new=$1/mysql-new
    command -v debootstrap >/dev/null || install_packages debootstrap debian-archive-keyring ||
        say_how_to_go_on_without "debootstrap, which gets MySQL,"
    as_root true 2>/dev/null || say_how_to_go_on_without "MySQL (it takes root)"
    remove_half_made "$new"
    printf 'Getting MySQL from Debian unstable, once\n' >&2
    fill_mysql_folder "$new" >"$new.log" 2>&1 || fail "MySQL could not be got, see $new.log"
    as_root mv -T "$new" "$1/mysql"
}

# setpriv: if this script is killed, what it started must not go on beside the next one.
fill_mysql_folder() {
    local mirror
    # Only a mirror that the machine uses already is surely reached; without one, debootstrap knows its own.
    mirror=$(debian_mirror)
    as_root setpriv --pdeathsig TERM -- \
        debootstrap --variant=minbase --include=mysql-server-core sid "$1" ${mirror:+"$mirror"} &&
        as_root rm -rf "$1"/var/cache/apt/archives "$1"/var/lib/apt/lists
}

debian_mirror() {
    # shellcheck disable=SC2016  the names are apt's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' |
        sed -n 1p
}

# debootstrap mounts these while it works, and an interrupted one may leave them.
remove_half_made() {
    as_root umount "$1/proc" "$1/sys" 2>/dev/null || true
    as_root rm -rf --one-file-system "$1"
}
