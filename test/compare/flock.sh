# flock(1), of util-linux.

try_flock() {
	local p out
	flock --version | sed 's/^/  /'
	begin log flock f sleep 60
	p=$begun
	until_true 10 pgrep -P "$p"
	! flock -n f true
	shown 'one at a time, and -n gives up'
	local child=$(pgrep -P "$p")
	kill -9 "$p"
	wait "$p" 2>/dev/null
	! flock -n f true
	shown 'killed, it leaves the lock to its command'
	kill "$child"
	out=$(flock -w 10 f env | grep -ciE '^(flock|.*token)')
	[ "$out" = 0 ]
	shown 'the command is given no token'
	out=$(flock -s s sh -c 'flock -n -s s echo both; flock -n s echo alone || echo not alone')
	saw '^both$' 'shared and exclusive'
	setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all flock /dev/null true
	shown 'without privileges'
}
