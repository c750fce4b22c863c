// Package libvirt tests that unmodified Debian packages of libvirt, with its plug-in for sanlock, run on
// bakeryd: two hosts cannot run the same domain. Hosts are namespaces of this machine, each with its own
// bakeryd, libvirtd and qemu. They share a directory, which has the leases of the plug-in, and the disk of the
// bakery lockspace. A domain has no operating system: qemu stays in its BIOS, without KVM.
//
//	go test -count=1 -tags libvirt ./test/libvirt
//
// needs root, a kernel with overlayfs and FUSE, Debian with qemu-system-x86, and its package mirror. The
// packages of libvirt are downloaded and unpacked; nothing is installed. Files are in BAKERY_TEST_DIR, by default
// /var/tmp, and are removed at the end. Begin with [host] in host_test.go, and testdata/host, which is its first
// process.
package libvirt
