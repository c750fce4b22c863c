//go:build vm

package vm

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// modules are the modules that the machines load; their dependencies are added.
var modules = []string{
	"virtio_pci", "virtio_console", "virtio_blk", "virtio_scsi", "sd_mod", "sg", // machine and disks
	"9pnet_virtio", "9p", // directory that survives a reboot
	"softdog", "i6300esb", "ib700wdt",
	"ext4", "crc32c_generic", // root filesystem
	"dm_mod",
	"tcm_loop", "target_core_file", // a SCSI target in the kernel
	"iscsi_target_mod", "target_core_iblock", "virtio_net", // and one for other machines
}

// unpack downloads a Debian package and unpacks its files that match. Nothing is installed.
func unpack(name, dir string, files ...string) error {
	into, err := os.MkdirTemp(base, "deb")
	if err != nil {
		return err
	}
	download := func() error { return execute(into, "apt-get", "download", "-qq", name) }
	if err := download(); err != nil { // the package lists may be out of date
		if err := execute(into, "apt-get", "update", "-qq"); err != nil {
			return err
		}
		if err := download(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return execute(into, append([]string{"sh", "-ec", `dpkg-deb --fsys-tarfile *.deb | tar -x --wildcards -C "$@"`, "sh", dir}, files...)...)
}

// fetchBusybox adds busybox to the machines' root. The package is not installed, because another
// busybox may be.
func fetchBusybox(root string) error {
	dir := filepath.Join(base, "busybox")
	if err := unpack("busybox-static", dir, "*/bin/busybox"); err != nil {
		return err
	}
	return execute(dir, "sh", "-ec", `mv $(find . -type f -name busybox) "$1"`, "sh", filepath.Join(root, "bin"))
}

// fetchKernel returns the image of Debian's kernel, and adds the modules to the machines' root.
func fetchKernel(root string) (image string, err error) {
	out, err := exec.Command("apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends: %w", err)
	}
	name := regexp.MustCompile(`linux-image-([0-9]\S*)`).FindSubmatch(out)
	if name == nil {
		return "", fmt.Errorf("linux-image-amd64 depends on no kernel: %s", out)
	}
	version := string(name[1])
	dir := filepath.Join(base, "kernel")
	wanted := []string{"./boot/vmlinuz-*"}
	for _, folder := range []string{"arch/x86/crypto", "block", "crypto", "lib", "fs/configfs", "fs/ext4", "fs/jbd2", "fs/9p", "fs/netfs", "fs/fscache", "net/9p", "drivers/block", "drivers/char", "drivers/scsi", "drivers/target", "drivers/virtio", "drivers/watchdog"} {
		wanted = append(wanted, "*/kernel/"+folder+"/*")
	}
	for _, module := range []string{"fs/mbcache", "drivers/md/dm-mod", "drivers/net/virtio_net", "drivers/net/net_failover", "net/core/failover"} {
		wanted = append(wanted, "*/kernel/"+module+".ko*")
	}
	if err := unpack(string(name[0]), dir, wanted...); err != nil {
		return "", err
	}
	if dirs, _ := filepath.Glob(filepath.Join(dir, "usr/lib/modules")); dirs != nil { // since Debian 13
		dir = filepath.Join(dir, "usr")
	}
	return filepath.Join(base, "kernel/boot/vmlinuz-"+version), addModules(root, dir, version)
}

// addModules copies the modules and their dependencies.
func addModules(root, dir, version string) error {
	from := filepath.Join(dir, "lib/modules", version)
	to := filepath.Join(root, "lib/modules", version)
	if err := execute(base, "sh", "-ec", `find "$1" -name "*.ko.xz" -exec unxz {} +; "$4" depmod -b "$2" "$3"`,
		"sh", from, dir, version, filepath.Join(root, "bin/busybox")); err != nil {
		return err
	}
	dep, err := os.ReadFile(filepath.Join(from, "modules.dep"))
	if err != nil {
		return err
	}
	missing := make(map[string]bool)
	for _, m := range modules {
		missing[m] = true
	}
	kept := ""
	needed := make(map[string]bool)
	for line := range strings.Lines(string(dep)) {
		files := strings.Fields(strings.Replace(line, ":", " ", 1))
		if name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(files[0]), ".ko"), "-", "_"); missing[name] {
			delete(missing, name)
			for _, file := range files {
				needed[file] = true
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the kernel has no %v", missing)
	}
	for line := range strings.Lines(string(dep)) {
		if needed[strings.SplitN(line, ":", 2)[0]] {
			kept += line
		}
	}
	for file := range needed {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o755); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(from, file), filepath.Join(to, file)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, "modules.dep"), []byte(kept), 0o644)
}

// archive makes a cpio archive of a directory, in the only format that the kernel reads.
func archive(path, root string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	inode := 0
	entry := func(name string, mode uint32, content []byte) {
		inode++
		fmt.Fprintf(w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad := func(n int) { _, _ = w.WriteString("\x00\x00\x00"[:-n&3]) }
		pad(110 + len(name) + 1)
		_, _ = w.Write(content)
		pad(len(content))
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name := path[len(root)+1:]
		if d.IsDir() {
			entry(name, 0o040755, nil)
			return nil
		}
		content, err := os.ReadFile(path)
		entry(name, 0o100755, content)
		return err
	})
	if err != nil {
		return err
	}
	entry("TRAILER!!!", 0, nil)
	return w.Flush() // returns any earlier error, too
}

// execute runs a program to its end.
func execute(dir string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", argv, err, out)
	}
	return nil
}
