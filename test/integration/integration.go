// Package integration tests bakeryd and bakeryctl as they are run: real
// processes, and for each host a loop device of its own over one file, with
// sectors of 512 and of 4096 bytes. It knows what the README promises, and the
// layout only to damage records and to know them in a trace of system calls.
//
//	go test -tags integration ./test/integration
//
// needs root, losetup(8), unshare(1), strace(1), curl(1) and a kernel with FUSE,
// by which a disk is made to hang. The images are in BAKERY_TEST_DIR, else in
// /var/tmp, which must not be a tmpfs; those of tests whose times matter are on a
// tmpfs that is mounted below it. Begin with [space] in space_test.go and [host]
// in host_test.go; fault_test.go lists what can go wrong, and the tests of it.
package integration
