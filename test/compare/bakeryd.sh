# bakeryd: three hosts on a file, with a lease of 5 s.

# host ID [PREFIX...] starts the bakeryd of a host.
host() {
	local id=$1
	shift
	begin "$id.log" "$@" "$work/bin/bakeryd" --device "$PWD/img" --host-id "$id" --name "db$id" --socket "$PWD/$id.sock" \
		--runtime-dir "$PWD/$id.run" --state-dir "$PWD/$id.state"
	eval "daemon$id=$begun"
	until_true 60 ctl "$id" hosts
}

ctl() {
	local id=$1
	shift
	"$work/bin/bakeryctl" --socket "$PWD/$id.sock" "$@"
}

try_bakeryd() {
	local out p child i t
	CGO_ENABLED=0 "$here/../../cmd/build" "$work/bin" || { leave_out 'it cannot be built'; return; }
	"$work/bin/bakeryctl" format img --hosts 2000 --locks 64 --lease 5s >/dev/null
	shown 'formatted for 2000 hosts'
	for i in 1 2 3; do host $i; done
	! find "/proc/$daemon1/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n' | grep -qwFf - /proc/net/tcp /proc/net/tcp6 /proc/net/udp
	shown 'it listens to no network'
	out=$(ctl 1 lock m -- env; ctl 2 lock m -- env)
	[ "$(grep ^BAKERY_TOKEN <<<"$out" | sort -uV | wc -l)" = 2 ] && grep ^BAKERY_TOKEN <<<"$out" | sort -cV
	shown 'a token for each grant, and it grows'
	ctl 1 lock m -- sh -c 'exit 7'
	[ $? = 7 ]
	shown "the command's exit code"
	out=$(ctl 1 lock -s s -- sh -c "'$work/bin/bakeryctl' --socket '$PWD/2.sock' lock -n -s s -- echo both; \
		'$work/bin/bakeryctl' --socket '$PWD/2.sock' lock -n s -- echo alone || echo not alone")
	saw '^not alone$' 'shared and exclusive, across hosts'
	ctl 1 create k --permits 2 >/dev/null && ctl 1 lock k -- "$work/bin/bakeryctl" --socket "$PWD/2.sock" lock -n k -- \
		sh -c "! '$work/bin/bakeryctl' --socket '$PWD/3.sock' lock -n k -- true"
	shown 'two permits: two hosts, not three'

	ctl 1 lock q -- sleep 4 &
	until_true 10 sh -c "'$work/bin/bakeryctl' --socket '$PWD/1.sock' status | grep -q 'q .*held'"
	for i in 2 3 1; do
		ctl "$i" lock q -- sh -c "echo $i >>order" &
		until_true 10 sh -c "'$work/bin/bakeryctl' --socket '$PWD/1.sock' status --json | grep -q 'echo $i'" || sleep 1
	done
	wait $(jobs -p | grep -vxF "$(printf '%s\n' "$daemon1" "$daemon2" "$daemon3")")
	[ "$(paste -sd ' ' order)" = '2 3 1' ]
	shown 'first come, first served between hosts'

	ctl 1 lock r -- sleep 4 &
	p=$!
	until_true 10 sh -c "'$work/bin/bakeryctl' --socket '$PWD/2.sock' status | grep -q 'r .*held'"
	kill -9 "$daemon1"
	host 1
	wait "$p"
	shown 'a hold outlives a restart of the daemon'
	grep -q 'resumed=true' 1.log
	shown 'and is resumed'

	ctl 1 lock d -- sleep 60 &
	p=$!
	until_true 10 sh -c "'$work/bin/bakeryctl' --socket '$PWD/2.sock' status | grep -q 'd .*held'"
	kill -9 "$daemon1"
	t=$SECONDS
	ctl 2 lock d -- true
	shown "the lock of a daemon that is gone is free after $((SECONDS - t)) s: lease 5 s and a fifth at most"
	wait "$p"
	[ $? = 75 ]
	shown 'and its command was stopped before'
	out=$(ctl 2 events d)
	saw 'waited .* behind db1' 'an event journal'
	without_privileges
}

without_privileges() {
	local own=(setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all)
	mkdir own && cd own && "$work/bin/bakeryctl" format img --hosts 2 --locks 2 >/dev/null && chown -R 65534 . && chmod 755 "$work"
	begin log "${own[@]}" "$work/bin/bakeryd" --device "$PWD/img" --host-id 1 --socket "$PWD/1.sock" --runtime-dir "$PWD/run" --state-dir "$PWD/state"
	until_true 60 ctl 1 hosts
	out=$("${own[@]}" "$work/bin/bakeryctl" --socket "$PWD/1.sock" lock x -- id -u)
	saw '^65534$' 'without privileges or capabilities, given the right to the device'
	cd ..
}
