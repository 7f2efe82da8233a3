# network.sh - sourced by tests of a bad network: network namespaces that are connected by
# tests/campaigns/network_switch.c. The namespaces end with it, and it ends with its caller. The caller sets `nrl`
# (the program) and `work` (a working directory).
network_switch=$(dirname "$nrl")/../tests/campaigns/network_switch

# Prints why there can be no such network here; nothing if it is possible.
network_is_absent() {
    if [ "$(id -u)" -ne 0 ]; then echo "it needs root, for network namespaces"
    elif ! command -v ip nsenter >"$work/why"; then echo "it needs ip, of iproute2, and nsenter, of util-linux"
    elif [ ! -c /dev/net/tun ]; then echo "it needs /dev/net/tun"
    elif [ ! -x "$network_switch" ]; then echo "it needs $network_switch"
    else "$network_switch" 1 </dev/null >"$work/why" 2>&1 && return 1
        cat "$work/why"
    fi
}

# network_open N: machines 0 to N - 1, at 10.213.7.1 and on
network_open() {
    rm -f "$work/network"
    mkfifo "$work/network" || return 1
    "$network_switch" "$1" <"$work/network" >"$work/network.out" &
    network_pid=$!
    exec 9>"$work/network"
    tries=0
    until grep -q ready "$work/network.out"; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || return 1
        sleep 0.02
    done
    machine=0
    while [ $machine -lt "$1" ]; do
        (on $machine ip link set lo up) && (on $machine ip link set net0 up) &&
            (on $machine ip address add "10.213.7.$((machine + 1))/24" dev net0) || return 1
        machine=$((machine + 1))
    done
}

# network COMMAND...: see network_switch.c
network() {
    echo "$*" >&9
}

# on MACHINE COMMAND...: in the place of this shell
on() {
    space=/proc/$network_pid/fd/$((100 + $1))
    shift
    exec nsenter --net="$space" "$@" 9>&-
}

network_close() {
    exec 9>&-
    wait "$network_pid"
}

# ---- ranks on such machines, one on each, as torchrun would start them ----

# network_ranks N FOLDER ARGUMENT...: `nrl run ARGUMENT...` on machines 0 to N - 1; their output is in
# FOLDER/out.R and FOLDER/err.R, their numbers in $ranks
network_ranks() {
    world=$1 folder=$2 rank=0 ranks=
    shift 2
    while [ $rank -lt "$world" ]; do
        (
            RANK=$rank WORLD_SIZE=$world LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.213.7.1 MASTER_PORT=23456
            GLOO_SOCKET_IFNAME=net0 OMP_NUM_THREADS=1
            export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME OMP_NUM_THREADS
            on $rank "$nrl" run "$@"
        ) >"$folder/out.$rank" 2>"$folder/err.$rank" &
        ranks="$ranks $!"
        rank=$((rank + 1))
    done
}

# network_records FILE: how many steps it has
network_records() {
    cat "$1" 2>/dev/null | grep -c '"loss"' || true
}

# network_steps FILE N SECONDS: waits until there are N more steps in FILE; fails if they do not come
network_steps() {
    wanted=$(($(network_records "$1") + $2)) tries=$(($3 * 20))
    while [ "$(network_records "$1")" -lt $wanted ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "no $2 steps within $3 s"; return 1; }
        sleep 0.05
    done
}

# network_blames RANK VICTIM FILE: the output of that rank, FILE, names only the victim as lost. The victim itself, and
# every rank if VICTIM is -, may have lost any of the others, or may have been given up by one.
network_blames() {
    blamed=$(sed -n 's/.*rank \([0-9]*\) ([^)]*).*was lost.*/\1/p' "$3" | sort -u | tr '\n' ' ')
    case $2 in
    - | "$1") [ -n "$blamed" ] || grep -q 'considers this rank lost' "$3" ;;
    *) [ "$blamed" = "$2 " ] ;;
    esac
}

# network_lost VICTIM SECONDS FOLDER: all ranks end with exit code 4 within SECONDS and print why. The time of the last
# one is in $waited, in ms.
network_lost() {
    begin=$(date +%s%N) rank=0 bad=0
    for pid in $ranks; do
        while kill -0 "$pid" 2>/dev/null; do
            [ $(($(date +%s%N) - begin)) -lt $((($2 + 20) * 1000000000)) ] || kill -9 "$pid"
            sleep 0.05
        done
        wait "$pid"
        code=$?
        if [ $code -ne 4 ] || ! network_blames $rank "$1" "$3/err.$rank"; then
            echo "rank $rank: exit code $code, expected 4; it should have lost '$1':"
            cat "$3/err.$rank"
            bad=1
        fi
        rank=$((rank + 1))
    done
    waited=$((($(date +%s%N) - begin) / 1000000))
    [ $waited -le $(($2 * 1000)) ] || { echo "the last rank ended after $waited ms, expected $2 s at most"; bad=1; }
    return $bad
}

# network_stopped SECONDS FOLDER: sends TERM to rank 0; all ranks end with exit code 75 within SECONDS
network_stopped() {
    kill -TERM "$(echo "$ranks" | awk '{ print $1 }')"
    rank=0 bad=0
    for pid in $ranks; do
        tries=$(($1 * 20))
        while kill -0 "$pid" 2>/dev/null; do
            tries=$((tries - 1))
            [ $tries -gt 0 ] || kill -9 "$pid"
            sleep 0.05
        done
        wait "$pid"
        code=$?
        [ $code -eq 75 ] || { echo "rank $rank: exit code $code, expected 75"; cat "$2/err.$rank"; bad=1; }
        rank=$((rank + 1))
    done
    return $bad
}
