# sanlock: two daemons on one file, without the watchdog, which would reset this machine.

# lock DIR ACTION... sends a request to one of the two daemons.
lock() {
	local dir=$1
	shift
	SANLOCK_RUN_DIR=$PWD/$dir timeout 60 "$program" client "$@" 2>&1
}

start_sanlock() {
	local dir=$1
	shift
	mkdir -p "$dir"
	SANLOCK_RUN_DIR=$PWD/$dir begin "$dir.log" env "$@" "$program" daemon -D -w 0 -h 0 -l 0 -U root -G root -L -1 -S -1 -e "host$dir"
	until_true 5 test -S "$dir/sanlock.sock"
}

try_sanlock() {
	local out p t program resource preload=() own_log=
	unpack "$PWD/deb" sanlock libsanlock1 libaio1 || { leave_out 'its packages are fetched by root, on Debian'; return; }
	program=$PWD/deb/usr/sbin/sanlock
	export LD_LIBRARY_PATH
	LD_LIBRARY_PATH=$(echo "$PWD"/deb/usr/lib/*-linux-gnu)
	dpkg-deb -f "$PWD"/deb/sanlock_*.deb Package Version | paste -sd ' ' | sed 's/^/  /'
	[ -e /var/log/sanlock.log ] || own_log=1
	if ! start_sanlock a; then
		out=$(tail -n 1 a.log)
		saw 'cannot set the limits for memlock' 'it wants CAP_SYS_RESOURCE, even as root and told to lock no memory'
		gcc -O2 -shared -fPIC -o nolimit.so "$here/../bench/sanlock/nolimit.c" 2>/dev/null || { leave_out 'the rest: no gcc for a setrlimit(2) that does nothing'; return; }
		preload=("LD_PRELOAD=$PWD/nolimit.so")
	fi
	{ start_sanlock a "${preload[@]}"; p=$begun; start_sanlock b "${preload[@]}"; } || { leave_out "it does not run: $(tail -n 1 a.log)"; return; }
	dd if=/dev/zero of=img bs=1M count=4 status=none
	resource=t:r:$PWD/img:1048576
	lock a init -s "t:0:$PWD/img:0" >/dev/null && lock a init -r "$resource" >/dev/null
	t=$SECONDS
	lock a add_lockspace -s "t:1:$PWD/img:0" >/dev/null &
	local joining=$!
	lock b add_lockspace -s "t:2:$PWD/img:0" >/dev/null && wait $joining
	shown "joins its lockspace in $((SECONDS - t)) s"
	[ "$(stat -c %s img)" = 4194304 ]
	shown 'a resource takes 1 MiB at an offset that the user keeps (here of 512-byte sectors)'
	SANLOCK_RUN_DIR=$PWD/a begin holder.log "$program" client command -r "$resource" -c /bin/sleep 400
	local holder=$begun
	until_true 20 sh -c "SANLOCK_RUN_DIR='$PWD/a' '$program' client status | grep -qE '^r t:r.* p [0-9]+ *\$'"
	shown 'a command under a lease: sanlock client command'
	out=$(lock b command -r "$resource" -c /bin/true)
	saw 'acquire done -' 'who comes second is refused at once, and does not wait'
	out=$("$program" direct read_leader -r "$resource" | grep lver)
	saw 'lver 1' 'the lease has a version'
	kill -9 "$p"
	t=$SECONDS
	until_true 200 sh -c "SANLOCK_RUN_DIR='$PWD/b' '$program' client command -r '$resource' -c /bin/true"
	shown "the lease of a daemon that is gone is free after $((SECONDS - t)) s (by its manual and source 8 x 10 + 60)"
	alive "$holder"
	shown 'its command continues: without the watchdog nothing stops it (with it, the host is reset)'
	out=$("$program" direct read_leader -r "$resource" | grep lver)
	saw 'lver 2' 'the version grew'
	SANLOCK_RUN_DIR=$PWD/b begin shared.log "$program" client command -r "$resource:SH" -c /bin/sleep 20
	until_true 20 sh -c "SANLOCK_RUN_DIR='$PWD/b' '$program' client status | grep -qE '^r t:r.* p [0-9]+ *\$'"
	lock b command -r "$resource:SH" -c /bin/true >/dev/null
	shown 'shared leases'
	out=$(lock b renewal -s t | tail -n 3)
	saw 'timestamp=.*read_ms=.*write_ms=' 'a history of renewals, one read and one write in 20 s'
	lock b shutdown -f 1 -w 1 >/dev/null
	[ -z "$own_log" ] || rm -f /var/log/sanlock.log
	unset LD_LIBRARY_PATH
}
