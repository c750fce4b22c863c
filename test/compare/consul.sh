# consul: one server, and consul lock. Debian 12 does not have it, so it is built from its module,
# which takes some minutes and a gigabyte in Go's caches.

# The newest version that builds without modules that its go.mod replaces by directories.
consul_version=v1.13.9

build_consul() {
	mkdir -p module && (
		cd module && printf 'module compare\n\ngo 1.26\n' >go.mod &&
			nice timeout 900 go get -tool "github.com/hashicorp/consul@$consul_version" golang.org/x/sys@v0.28.0 golang.org/x/net@v0.33.0 &&
			nice timeout 1800 go build -o ../consul github.com/hashicorp/consul
	) >build.log 2>&1
}

consul() { CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" "$@"; }

serve_consul() {
	begin server.log "$PWD/consul" agent -server -bootstrap-expect=1 -data-dir="$PWD/data" -bind=127.0.0.1 -client=127.0.0.1 -http-port=28500 \
		-dns-port=-1 -grpc-port=-1 -server-port=28300 -serf-lan-port=28301 -serf-wan-port=28302 -log-level=err
	server=$begun
	until_true 60 consul kv put x y
}

try_consul() {
	local out p t i child session server
	build_consul || { leave_out "it cannot be built: $(tail -n 1 build.log)"; return; }
	consul version | head -n 1 | sed 's/^/  /'
	serve_consul || { leave_out "it does not run: $(tail -n 1 server.log)"; return; }
	out=$(consul lock m env | grep -E 'CONSUL_LOCK|INDEX|TOKEN')
	saw '^CONSUL_LOCK_HELD=true$' 'a command under a lock'
	[ "$(grep -cE 'INDEX|TOKEN' <<<"$out")" = 0 ]
	shown 'and it is given no token (LockIndex is in the store)'
	consul lock -shell=false m sh -c 'exit 7' >/dev/null 2>&1
	i=$?
	consul lock -shell=false -child-exit-code m sh -c 'exit 7' >/dev/null 2>&1
	[ "$i $?" = '0 2' ]
	shown 'a command that exits with 7 has it exit with 0, or 2 if asked'
	for i in 1 2; do begin s.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock -n 2 s sleep 8; done
	sleep 3
	! consul lock -n 2 -timeout 1s s true >/dev/null 2>&1
	shown 'a semaphore: -n 2'
	begin holder.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock -shell=false m sleep 90
	p=$begun
	until_true 20 sh -c "pgrep -P $p"
	child=$(pgrep -P "$p")
	session=$(consul kv get -detailed m/.lock | awk '/^Session/ { print $2 }')
	curl -s -X PUT "http://127.0.0.1:28500/v1/session/destroy/$session" >/dev/null
	t=$SECONDS
	until_true 20 sh -c "! kill -0 $child"
	shown 'a command whose lock was lost is stopped'
	consul lock m true >/dev/null
	[ $((SECONDS - t)) -ge 10 ]
	shown "and others wait for the lock-delay first: $((SECONDS - t)) s"
	begin holder2.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock -shell=false d sleep 120
	p=$begun
	until_true 20 sh -c "pgrep -P $p"
	child=$(pgrep -P "$p")
	kill -9 "$p"
	t=$SECONDS
	consul lock d true >/dev/null
	shown "the lock of a client that was killed is free after $((SECONDS - t)) s (session 15 s to twice that, lock-delay 15 s)"
	kill -0 "$child"
	shown 'while its command still runs'
	kill "$child"
	begin q.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock q sleep 4
	sleep 1
	for i in 1 2 3 4 5; do
		begin q.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock -shell=false q sh -c "echo $i >>'$PWD/order'"
		sleep 0.5 # nothing shows the waiters; the order is printed, not checked
	done
	until_true 90 sh -c "[ \$(grep -c . '$PWD/order') = 5 ]"
	shown "waiters 1 2 3 4 5 were let in as $(paste -sd ' ' order)"
	begin r.log env CONSUL_HTTP_ADDR=127.0.0.1:28500 "$PWD/consul" lock -shell=false r sh -c 'sleep 10; touch kept'
	p=$begun
	until_true 40 sh -c "pgrep -P $p"
	kill -9 "$server"
	serve_consul
	until_true 60 test -e kept
	shown 'a hold outlives a short restart of the server'
}
