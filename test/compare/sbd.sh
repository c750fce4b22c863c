# SBD: only its disk. Its purpose is that Pacemaker resets nodes, which is not tried here.

try_sbd() {
	local out program disk packages
	packages=$(apt-get install -s --no-install-recommends sbd 2>/dev/null | awk '/^Inst/ { print $2 }')
	unpack "$PWD/deb" $packages sbd libaio1 libglib2.0-0 || { leave_out 'its packages are fetched by root, on Debian'; return; }
	program=$PWD/deb/usr/sbin/sbd
	export LD_LIBRARY_PATH
	LD_LIBRARY_PATH=$(echo "$PWD"/deb/usr/lib/*-linux-gnu):$(echo "$PWD"/deb/lib/*-linux-gnu):$PWD/deb/usr/lib
	dpkg-deb -f "$PWD"/deb/sbd_*.deb Package Version | paste -sd ' ' | sed 's/^/  /'
	truncate -s 4M img
	disk=$(losetup -f --show "$PWD/img") || { leave_out 'no loop device'; return; }
	loops+=("$disk")
	out=$("$program" -d "$disk" create 2>&1)
	saw 'Initializing 255 slots' 'a slot for each of 255 nodes'
	out=$("$program" -d "$disk" dump)
	saw 'Timeout \(watchdog\) : 5' 'the watchdog, 5 s, is what it is made of'
	"$program" -d "$disk" allocate db1 >/dev/null 2>&1
	"$program" -d "$disk" message db1 test >/dev/null 2>&1
	out=$("$program" -d "$disk" list)
	saw 'db1.*test' 'hosts send each other messages: test, reset, off, crashdump, exit, clear'
	[ -z "$("$program" help 2>&1 | grep -iw lock)" ]
	shown 'it has no locks'
	unset LD_LIBRARY_PATH
}
