# Sourced by scripts/test and scripts/bench after environment.sh: gets the programs that run beside the service.
# shellcheck shell=bash

cache=${XDG_CACHE_HOME:-$HOME/.cache}/cupo

# The server programs lie in sbin, which an ordinary user's PATH leaves out.
export PATH=$PATH:$cache/bin:/usr/local/sbin:/usr/sbin:/sbin

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
    local lock
    [[ -x $cache/mysql/usr/sbin/mysqld ]] && return
    mkdir -p "$cache"
    exec {lock}>"$cache/mysql.lock"
    flock "$lock"
    [[ -x $cache/mysql/usr/sbin/mysqld ]] || make_mysql_folder
    exec {lock}>&-
}

make_mysql_folder() {
    local new=$cache/mysql-new
    command -v debootstrap >/dev/null || install_packages debootstrap debian-archive-keyring ||
        say_how_to_go_on_without "debootstrap, which gets MySQL,"
    as_root true 2>/dev/null || say_how_to_go_on_without "MySQL (it takes root)"
    remove_half_made "$new"
    printf 'Getting MySQL from Debian unstable, once\n' >&2
    fill_mysql_folder "$new" >"$new.log" 2>&1 || fail "MySQL could not be got, see $new.log"
    as_root mv -T "$new" "$cache/mysql"
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

# Debian's redis-server is a service, started at once and at every boot, and this link to the program of redis-tools,
# which goes by the name that it is called by.
get_redis() {
    command -v redis-server >/dev/null && return
    if { command -v redis-check-rdb >/dev/null || install_packages redis-tools; } &&
        mkdir -p "$cache/bin" &&
        ln -sf "$(command -v redis-check-rdb)" "$cache/bin/redis-server" &&
        [[ "$(redis-server --version 2>&1)" == "Redis server"* ]]; then
        return
    fi
    rm -f "$cache/bin/redis-server"
    say_what_is_left_out redis-server "what needs Redis is left out"
}

# Both packages are services, started at once and at every boot: only what they hold is unpacked, into the cache.
get_prometheus() {
    command -v promtool >/dev/null || unpack prometheus usr/bin/promtool ||
        say_what_is_left_out prometheus "metrics and alerts are not held to Prometheus's own tool"
}

get_haproxy() {
    command -v haproxy >/dev/null || unpack haproxy usr/sbin/haproxy ||
        say_what_is_left_out haproxy "no replica is restarted behind a load balancer"
}

get_dump() {
    command -v mariadb-dump >/dev/null || unpack mariadb-client usr/bin/mariadb-dump ||
        say_what_is_left_out mariadb-client "no database is dumped and restored"
}

# Galera's library and rsync are no services. What a joining node runs to fetch the data comes with one, and is only
# unpacked: wsrep_sst_rsync, and wsrep_sst_common beside it.
get_galera() {
    get_mariadb
    { [[ -e /usr/lib/galera/libgalera_smm.so ]] && command -v rsync ip >/dev/null; } ||
        install_packages galera-4 rsync iproute2 ||
        say_what_is_left_out galera-4 "no Galera cluster is started" || return 0
    command -v wsrep_sst_rsync >/dev/null || unpack mariadb-server usr/bin/wsrep_sst_rsync ||
        say_what_is_left_out mariadb-server "no Galera cluster is started"
}

get_group_replication() {
    get_mysql
    command -v ip >/dev/null || install_packages iproute2 ||
        say_what_is_left_out iproute2 "no group of MySQL servers is started"
}

# A package's program, linked into the cache, and the libraries that it needs, installed.
unpack() {
    local package=$1 program=$2 libraries folder=$cache/$1
    may_install_packages || return
    update_package_lists
    mkdir -p "$folder" "$cache/bin"
    (cd "$folder" && apt-get download -qq "$package" >/dev/null && dpkg -x "$package"_*.deb .) || return
    rm -f "$folder/$package"_*.deb
    if ldd "$folder/$program" 2>/dev/null | grep -q 'not found'; then
        mapfile -t libraries < <(apt-cache depends "$package" | sed -n 's/^ *Depends: \(lib[a-z0-9.-]*\)$/\1/p')
        install_packages "${libraries[@]}" || return
    fi
    ln -sf "$folder/$program" "$cache/bin/"
}

get_compiler() {
    command -v cc >/dev/null || install_packages gcc libc6-dev ||
        say_what_is_left_out gcc "no replica is shown a wrong clock"
}

get_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && return
    done
    install_packages chromium || say_what_is_left_out chromium "pages are not looked at in a browser"
}

get_wrk() {
    command -v wrk >/dev/null || install_packages wrk || say_what_is_left_out wrk "no load can be made by it"
}

get_go() {
    local driver=golang-github-go-sql-driver-mysql-dev
    command -v go >/dev/null && [[ -d /usr/share/gocode/src/github.com/go-sql-driver/mysql ]] && return
    install_packages golang-go "$driver" || say_what_is_left_out "golang-go and $driver" "the peer in Go is left out"
}

get_c() {
    command -v gcc >/dev/null && command -v mariadb_config >/dev/null && return
    install_packages gcc libc6-dev libmariadb-dev ||
        say_what_is_left_out "gcc and libmariadb-dev" "the peer in C is left out"
}

say_what_is_left_out() {
    printf '%s: %s; install the package %s\n' "$(basename "$0")" "$2" "$1" >&2
}
