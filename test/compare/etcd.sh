# etcd: one node, and etcdctl lock.

serve_etcd() {
	begin etcd.log "$PWD/deb/usr/bin/etcd" --name one --data-dir "$PWD/data" --listen-client-urls "$url" --advertise-client-urls "$url" \
		--listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
		--initial-cluster one=http://127.0.0.1:23800 --log-level error
	server=$begun
	until_true 60 etcdctl endpoint health
}

etcdctl() { ETCDCTL_API=3 "$PWD/deb/usr/bin/etcdctl" --endpoints="$url" "$@"; }

try_etcd() {
	local out p t i key server child url=http://127.0.0.1:23790
	unpack "$PWD/deb" etcd-server etcd-client || { leave_out 'its packages are fetched by root, on Debian'; return; }
	etcdctl version | head -n 1 | sed 's/^/  /'
	serve_etcd || { leave_out "it does not run: $(tail -n 1 etcd.log)"; return; }
	out=$(etcdctl lock m env | grep ETCD_LOCK; etcdctl lock m env | grep ETCD_LOCK_REV)
	[ "$(grep REV <<<"$out" | sort -uV | wc -l)" = 2 ]
	shown 'a token for each grant: ETCD_LOCK_REV'
	etcdctl lock m -- sh -c 'touch ran; exit 7' >/dev/null 2>&1
	i=$?
	[ $i != 0 ] && [ -e ran ]
	shown "a command that exits with 7 has it exit with $i"
	begin holder.log env ETCDCTL_API=3 "$PWD/deb/usr/bin/etcdctl" --endpoints="$url" lock m sleep 90
	p=$begun
	until_true 10 sh -c "pgrep -P $p"
	child=$(pgrep -P "$p")
	key=$(etcdctl get m --prefix --keys-only | grep . | head -n 1)
	for i in 1 2 3; do
		etcdctl lock m echo "$i" >>order 2>/dev/null &
		until_true 10 sh -c "[ \$(ETCDCTL_API=3 '$PWD/deb/usr/bin/etcdctl' --endpoints=$url get m --prefix --keys-only | grep -c .) -gt $i ]"
	done
	etcdctl lease revoke "${key#m/}" >/dev/null
	until_true 20 sh -c "[ \$(grep -c . '$PWD/order') = 3 ]"
	[ "$(paste -sd ' ' order)" = '1 2 3' ]
	shown 'first come, first served'
	alive "$child"
	shown 'a command whose lock was lost, and had by three others since, runs on'
	kill "$p" "$child" 2>/dev/null
	begin holder2.log env ETCDCTL_API=3 "$PWD/deb/usr/bin/etcdctl" --endpoints="$url" lock d sleep 90
	p=$begun
	until_true 10 sh -c "pgrep -P $p"
	child=$(pgrep -P "$p")
	kill -9 "$p"
	t=$SECONDS
	etcdctl lock d true
	shown "the lock of a client that was killed is free after $((SECONDS - t)) s (--ttl 10)"
	alive "$child"
	shown 'while its command still runs'
	kill "$child"
	etcdctl lock r sleep 8 >/dev/null &
	p=$!
	until_true 10 sh -c "ETCDCTL_API=3 '$PWD/deb/usr/bin/etcdctl' --endpoints=$url get r --prefix --keys-only | grep -q ."
	kill "$server"
	wait "$server" 2>/dev/null
	serve_etcd
	out=$(etcdctl get r --prefix --keys-only)
	saw '^r/' 'a hold outlives a restart of the server'
	wait "$p"
	out=$(etcdctl lock --help 2>&1 | grep -cE -- '--(shared|limit|try|n)\b')
	[ "$out" = 0 ]
	shown 'no shared mode, no semaphore, no time-out for the wait'
	kill "$server"
	! timeout 15 "$PWD/deb/usr/bin/etcdctl" --endpoints="$url" lock m true >/dev/null 2>&1
	shown 'without its servers no lock is granted'
}
