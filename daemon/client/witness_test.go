package client

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/test/clienttest"
)

func TestWitnessKeepsTheLock(t *testing.T) {
	b := clienttest.Serve(t, clienttest.Holding)
	h := mustLock(t, b.Socket, Options{Witness: true})
	if info, err := os.Stat(h.Witness()); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("FIFO %q: %v", h.Witness(), err)
	}
	if b.Witnessed() {
		t.Error("this process has the FIFO open")
	}
	// A command started without Inherit does not hold the lock.
	other, otherEnd := startCat(t)
	d, err := h.Inherit()
	if err != nil {
		t.Fatal(err)
	}
	if d < firstInherited {
		t.Errorf("descriptor %d, want at least %d", d, firstInherited)
	}
	if flags, err := unix.FcntlInt(uintptr(d), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_WRONLY {
		t.Errorf("file status flags %#x, %v: not a write end", flags, err)
	}
	holder, holderEnd := startCat(t)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	b.Kill()
	if !b.Witnessed() {
		t.Error("the command does not hold the lock")
	}
	holderEnd()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if b.Witnessed() {
		t.Error("the lock is held after the command")
	}
	otherEnd()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

// startCat starts a command that runs until the returned function is called.
func startCat(t *testing.T) (*exec.Cmd, func()) {
	t.Helper()
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() { _ = stdin.Close() }
}

// TestWitnessIsWaitedFor: bakeryd restarts between the grant and the start of the command.
func TestWitnessIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	b := clienttest.Serve(t, func(x *exchange) {
		x.Send(`{"event":"granted","name":"x","mode":"exclusive","token":%q,"host":3,"lease_ms":60000,"witness":%q}`, token, path)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{Witness: true})
	inherited := make(chan error, 1)
	go func() {
		d, err := h.Inherit()
		inherited <- errors.Join(err, d.Close())
	}()
	select {
	case err := <-inherited:
		t.Fatalf("inherited a FIFO without a reader: %v", err)
	case <-time.After(10 * firstPause):
	}
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-inherited; err != nil {
		t.Error(err)
	}
	if err := errors.Join(reader.Close(), h.Unlock()); err != nil {
		t.Error(err)
	}
}

func TestWitnessThatCannotBeOpened(t *testing.T) {
	b := clienttest.Serve(t, func(x *exchange) {
		x.Send(`{"event":"granted","name":"x","mode":"exclusive","token":%q,"host":3,"lease_ms":60000,"witness":"/no/such"}`, token)
		<-x.Gone
	})
	h := mustLock(t, b.Socket, Options{Witness: true})
	d, err := h.Inherit()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
	if !b.Held() {
		t.Error("the inherited descriptor does not hold the lock")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	b.AwaitRelease()
}
