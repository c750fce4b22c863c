// Package integration tests bakeryd and bakeryctl as real processes. Each host has a loop device
// over one file, with sectors of 512 and of 4096 bytes. It knows the promises of the README. It
// knows the layout only to damage records, and to recognize them in a trace of system calls.
//
//	go test -tags integration ./test/integration
//
// needs root, losetup(8), unshare(1), strace(1), curl(1), and a kernel with FUSE, which makes disks
// hang. The images are in BAKERY_TEST_DIR, by default /var/tmp, which must not be a tmpfs. Tests
// that measure time use a tmpfs mounted below it. Begin with [space] in space_test.go and [host] in
// host_test.go; fault_test.go lists the faults and their tests.
package integration
