package main

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/blockdev"
	"github.com/bakeryd/bakeryd/daemon/lockspace"
	"github.com/bakeryd/bakeryd/layout"
	"github.com/bakeryd/bakeryd/test/standstill"
)

func TestMain(m *testing.M) {
	// The tests mostly wait, so more of them run in parallel than there are processors.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	testscript.Main(checkedTests{m}, map[string]func(){"bakeryctl": checkedMain})
}

// TestScript runs the scripts of testdata/script. Its additions to testscript are:
//
//	exitcode N PROGRAM ARGS     runs a program that must exit with N
//	damage FILE BYTE            changes a byte
//	write FILE BYTE HEX         changes several bytes
//	populate FILE...            creates hosts and locks in a lockspace, on one disk or several
//	renew FILE ID               renews as a host until its lockspace is gone
//	serve SOCKET CODE FILE      answers every request on a socket
//	loop VAR FILE SECTOR        creates a loop device of a file, and sets a variable to its path
//	mount DEVICE DIR            mounts a device until the script ends
//	quiet                       standard error is empty, except for the warning of joining on a busy disk
//	[root] [tool:NAME]          conditions; if CI is true they must hold
func TestScript(t *testing.T) {
	t.Parallel()
	needDirectIO(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BAKERY_SOCKET", filepath.Join(env.WorkDir, "no.sock"))
			env.Setenv("PATH", env.Getenv("PATH")+":/usr/sbin:/sbin")
			env.Setenv("LEASE", standstill.Lease.String())
			env.Setenv(checkedDir, os.Getenv(checkedDir))
			return nil
		},
		Condition: condition,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exitcode": cmdExitCode,
			"damage":   cmdDamage,
			"write":    cmdWrite,
			"populate": cmdPopulate,
			"renew":    cmdRenew,
			"serve":    cmdServe,
			"loop":     cmdLoop,
			"mount":    cmdMount,
			"quiet":    cmdQuiet,
		},
	})
}

// needDirectIO skips a test if its temporary files are on tmpfs.
func needDirectIO(t *testing.T) {
	t.Helper()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(t.TempDir(), &fs))
	if fs.Type != unix.TMPFS_MAGIC {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs TMPDIR on a disk, not on tmpfs, and CI skips nothing")
	}
	t.Skip("SKIP: needs TMPDIR on a disk, not on tmpfs")
}

func condition(name string) (bool, error) {
	ok := false
	switch tool, isTool := strings.CutPrefix(name, "tool:"); {
	case isTool:
		_, err := exec.LookPath(tool)
		ok = err == nil
	case name == "root":
		ok = os.Geteuid() == 0
	default:
		return false, fmt.Errorf("unknown condition %q", name)
	}
	if !ok && os.Getenv("CI") == "true" {
		return false, fmt.Errorf("needs %s, and CI skips nothing", name)
	}
	return ok, nil
}

// must fails the script if err is not nil.
func must(ts *testscript.TestScript, err error) {
	if err != nil {
		ts.Fatalf("%v", err)
	}
}

func need(ts *testscript.TestScript, neg bool, args []string, usage string) {
	if neg || len(args) != len(strings.Fields(usage)) {
		ts.Fatalf("usage: %s", usage)
	}
}

func cmdExitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode N PROGRAM ARGS")
	}
	want, err := strconv.Atoi(args[0])
	must(ts, err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		must(ts, err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdDamage(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "FILE BYTE")
	change(ts, args[0], args[1], 1, func(b []byte) { b[0] ^= 0x40 })
}

func cmdWrite(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "FILE BYTE HEX")
	bytes, err := hex.DecodeString(args[2])
	must(ts, err)
	change(ts, args[0], args[1], len(bytes), func(b []byte) { copy(b, bytes) })
}

// change modifies n bytes of a file.
func change(ts *testscript.TestScript, name, offset string, n int, how func(b []byte)) {
	f, err := os.OpenFile(ts.MkAbs(name), os.O_RDWR, 0)
	must(ts, err)
	defer f.Close()
	at, err := strconv.ParseInt(offset, 10, 64)
	must(ts, err)
	b := make([]byte, n)
	_, err = f.ReadAt(b, at)
	must(ts, err)
	how(b)
	_, err = f.WriteAt(b, at)
	must(ts, err)
	must(ts, f.Sync())
}

// disk is a lockspace that a script writes to.
type disk struct {
	ts  *testscript.TestScript
	dev blockdev.Device
	sb  layout.Superblock
}

func openDisk(ts *testscript.TestScript, paths ...string) *disk {
	for i, path := range paths {
		paths[i] = ts.MkAbs(path)
	}
	dev, sb, _, err := lockspace.OpenDisks(paths, lockspace.DiskOptions{Timeout: time.Minute}) // the machine may stand still
	must(ts, err)
	return &disk{ts, dev, sb}
}

func (d *disk) put(at int64, encode func(p []byte) error) error {
	p := blockdev.Alloc(d.sb.Geometry.Stride)
	if err := encode(p); err != nil {
		return err
	}
	return d.dev.Write(p, at)
}

// generation returns that of all hosts.
func (d *disk) generation() uint32 {
	if d.sb.Members.Several() {
		return 3
	}
	return 0
}

func (d *disk) host(r layout.HostRecord) error {
	r.Incarnation, r.Generation, r.Epoch = 0xbaca<<44+uint64(r.ID), d.generation(), d.sb.Members.Epoch
	return d.put(d.sb.Geometry.Host(r.ID), func(p []byte) error { return d.sb.Space().EncodeHost(p, r) })
}

func (d *disk) entry(e layout.Entry) {
	if e.Creation = uint64(e.Lock); d.sb.Members.Several() {
		e.Token, e.Sequence = layout.MakeTicket(1000, 1), 7
	}
	must(d.ts, d.put(d.sb.Geometry.Entry(e.Lock), func(p []byte) error { return d.sb.Space().EncodeEntry(p, e) }))
}

func (d *disk) slot(s layout.Slot) {
	s.Creation, s.Incarnation, s.Generation = uint64(s.Lock), 0xbaca<<44+uint64(s.Host), d.generation()
	must(d.ts, d.put(d.sb.Geometry.Slot(s.Lock, s.Host), func(p []byte) error { return d.sb.Space().EncodeSlot(p, s) }))
}

func cmdPopulate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: populate FILE...")
	}
	d := openDisk(ts, args...)
	defer d.dev.Close()
	must(ts, d.host(layout.HostRecord{ID: 1, State: layout.StateLive, Sequence: 8123, Name: "db1", ReadHorizon: 4, WatchdogArmed: true, WatchdogSeconds: 10}))
	must(ts, d.host(layout.HostRecord{ID: 2, State: layout.StateLeft, Sequence: 17, Name: "db2", ReadHorizon: 4}))
	must(ts, d.host(layout.HostRecord{ID: 3, State: layout.StateLive, Sequence: 99, Name: "d\u202eb 3", ReadHorizon: 4}))
	for i, name := range []string{"nightly-backup", "srv/mail/spool", "two words", `a "quoted" one`, "bidi\u202eflip", "zero\u200bwidth"} {
		d.entry(layout.Entry{Lock: i + 1, Name: name, Permits: 1 + i/5*3})
	}
	d.entry(layout.Entry{Lock: 8}) // free
	d.slot(layout.Slot{Lock: 1, Host: 1, Phase: layout.Held, Ticket: layout.MakeTicket(1000, 1),
		Holder: layout.Holder{PID: 4711, Since: time.Now().Add(-130 * time.Second), Command: "rsync -a /srv/ /mnt/"},
		Value:  []byte("generation=18"), ValueToken: layout.MakeTicket(900, 3)})
	d.slot(layout.Slot{Lock: 1, Host: 3, Phase: layout.Waiting, Ticket: layout.MakeTicket(1001, 3),
		Request: layout.Request{Ticket: layout.MakeTicket(1000, 1), At: time.Unix(1e9, 0), Message: "re\u202eboot"}})
	d.slot(layout.Slot{Lock: 2, Host: 3, Phase: layout.Choosing, Mode: layout.Shared, Ticket: layout.MakeTicket(1002, 3)})
	d.slot(layout.Slot{Lock: 3, Host: 2, Phase: layout.Held, Ticket: layout.MakeTicket(1003, 2)}) // left
}

func cmdRenew(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "FILE ID")
	d := openDisk(ts, args[0])
	id, err := strconv.Atoi(args[1])
	must(ts, err)
	r := layout.HostRecord{ID: id, State: layout.StateLive, Name: "db" + args[1], ReadHorizon: id}
	must(ts, d.host(r))
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-time.After(100 * time.Millisecond):
			}
			if sb, _, err := lockspace.FindLockspace(d.dev); err != nil || sb.UUID != d.sb.UUID {
				done <- nil
				return
			}
			r.Sequence++
			if err := d.host(r); err != nil {
				done <- err
				return
			}
		}
	}()
	ts.Defer(func() {
		close(stop)
		must(ts, <-done)
		must(ts, d.dev.Close())
	})
}

func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "SOCKET CODE FILE")
	code, err := strconv.Atoi(args[1])
	must(ts, err)
	body := ts.ReadFile(args[2])
	listener, err := net.Listen("unix", ts.MkAbs(args[0]))
	must(ts, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := code
		if r.Method != http.MethodGet || r.URL.Path != "/v1/status" && r.URL.Path != "/page/status" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	ts.Defer(func() {
		must(ts, server.Close())
		<-done
	})
}

func cmdLoop(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "VAR FILE SECTOR")
	var out []byte
	var err error
	for range 50 { // another process may take the same free device
		out, err = exec.Command("losetup", "-f", "--show", "--sector-size", args[2], ts.MkAbs(args[1])).Output()
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	must(ts, err)
	dev := strings.TrimSpace(string(out))
	ts.Setenv(args[0], dev)
	ts.Defer(func() { must(ts, exec.Command("losetup", "-d", dev).Run()) })
}

// cmdQuiet accepts the warnings of joining a lockspace on a busy disk.
func cmdQuiet(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "")
	if output := slowJoin.ReplaceAllString(withoutStalls(ts.ReadFile("stderr")), ""); output != "" {
		ts.Fatalf("standard error: %q", output)
	}
}

func cmdMount(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, "DEVICE DIR")
	dir := ts.MkAbs(args[1])
	must(ts, os.MkdirAll(dir, 0o755))
	must(ts, exec.Command("mount", args[0], dir).Run())
	ts.Defer(func() { must(ts, exec.Command("umount", dir).Run()) })
}
