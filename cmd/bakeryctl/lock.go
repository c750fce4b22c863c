package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bakeryd/bakeryd/daemon/api"
	"github.com/bakeryd/bakeryd/daemon/client"
	"github.com/bakeryd/bakeryd/layout"
)

const lockLong = `Run COMMAND while holding the lock NAME, as flock(1) does for the hosts that share a disk.

The lock is released when COMMAND and every process that it leaves behind have ended, even if bakeryctl is killed.
COMMAND finds the lock's name in BAKERY_LOCK, its fencing token in BAKERY_TOKEN and the id of this host in
BAKERY_HOST_ID. By BAKERY_SESSION and BAKERY_SOCKET it reaches its hold: bakeryctl mode and bakeryctl value set use
them. A storage or service that refuses tokens smaller than one it has seen is safe even from a holder that was
suspended.

COMMAND runs in a cgroup of its own (version 2) below that of bakeryctl. bakeryctl makes it if it may, or else
bakeryd does, if it runs as root and sees the process. Every process in it keeps the lock, and is killed when the
lock is lost, whatever it closed, became or forked. If no cgroup can be made, containment is weak: a process keeps
the lock while it has a descriptor open that COMMAND inherits, and if bakeryctl is gone, bakeryd finds only such
processes and their descendants. -v prints which it is, bakeryctl status shows "held, weak", and with
--require-containment COMMAND does not start then.

COMMAND never starts late: its process compares CLOCK_BOOTTIME with the end of the lease right before execve(2). If
bakeryctl is stopped when it is granted the lock, and does not confirm that within 2 s, or a sixth of the lease if
that is less, the lock passes to the next client, and bakeryctl waits again, last in the queue.

If the host's lease is about to end without having been renewed, COMMAND and every process that descends from it
get SIGTERM a sixth of the lease before its end, and SIGKILL at its end; if the lock is lost before that, SIGTERM
immediately. Once COMMAND has been sent SIGTERM it is killed at the deadline, even if the lease is renewed in the
meantime. --on-lost runs CMD as well, with BAKERY_DEADLINE_MS, the milliseconds left until SIGKILL, which ends CMD
too. bakeryctl exits when none of them is left, and reports the processes that do not end by SIGKILL.

COMMAND starts with the signal dispositions and the signal mask of bakeryctl. bakeryctl forwards SIGHUP, SIGINT,
SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT and the real-time signals to COMMAND if a process sent them. Ctrl-C of
a terminal reaches COMMAND once, from the terminal. A terminal that is stopped by Ctrl-S, or that stops writers of
the background (stty tostop), delays what bakeryctl prints, but not COMMAND.

When somebody asks for the lock with bakeryctl request, here or on another host, COMMAND goes on as before, unless
--on-request says what to do. With a signal, TERM, SIGUSR1 or 10, COMMAND gets that signal: the process itself, and
nothing that it has started. Anything else is a command for the shell, run for every request, one after the other, with
BAKERY_REQUEST_HOST, the id of the host that asks, BAKERY_REQUEST_HOST_NAME and BAKERY_REQUEST_MESSAGE besides the
above. It does not hold the lock, and is stopped when COMMAND has ended. A request comes within a second or so.

If bakeryd dies or is restarted, COMMAND runs on, and a waiting bakeryctl keeps its place in the queue, provided
that bakeryd is back before the lease ends. bakeryctl does not need it to stop COMMAND in time. If bakeryctl is
killed as well, COMMAND keeps the lock, and the bakeryd that comes back stops it at the end of a lease. With --close
none of that holds for COMMAND and what it leaves running: the lock is bakeryctl's alone.

With --device bakeryctl is a host of the lockspace itself while it runs. Then the lock ends with bakeryctl: if
bakeryctl is killed, all in the cgroup of COMMAND is killed too (without a cgroup COMMAND's own process), and what
COMMAND leaves running does not hold the lock.

A lock inside itself waits without end: bakeryctl prints a warning if an ancestor of it holds the lock.

Exit codes:
  N    COMMAND's own exit code
  1    the lock was not granted at once (-n) or in time (-w); -E sets another
  64   the command line is wrong
  66   the device or its lockspace is not usable
  69   bakeryd is unreachable, or refuses
  75   the lock was lost, or about to be, and COMMAND was stopped or not begun
  77   this user may not take the lock: bakeryd --policy-file says who may
  126  COMMAND is not executable
  127  COMMAND was not found
  128+N  signal N killed COMMAND, or ended the wait for the lock`

const lockExample = `  # One of the hosts that run this every night makes the backup; the others skip it.
  0 3 * * *  root  bakeryctl lock -n -E 0 nightly-backup -- /usr/local/bin/backup

  # Wait for five minutes at most.
  bakeryctl lock -w 5m deploy -- ./deploy.sh production

  # Any number of readers, but no writer among them.
  bakeryctl lock --shared catalogue -- sh -c 'report < /srv/catalogue'

  # Lead, and let everybody know where: bakeryctl value get leader
  bakeryctl lock --value "$(hostname):5432" leader -- ./serve

  # Somebody is to know when the service was stopped because its lock could not be kept.
  bakeryctl lock --on-lost 'logger -p crit "no lock: stopping"' service -- /usr/local/bin/service

  # A backup that can be interrupted by whoever needs the lock: bakeryctl request nightly-backup
  bakeryctl lock --on-request TERM nightly-backup -- /usr/local/bin/backup

  # Without bakeryd, on a file: try it out in two terminals.
  bakeryctl lock --device ./demo.img --create demo -- sh -c 'echo token $BAKERY_TOKEN; sleep 10'`

// lockOptions are what the command line says.
type lockOptions struct {
	takeOptions
	close     bool
	verbose   bool
	contained bool   // a command that cannot be contained does not run
	onLost    string // for a shell; empty: nothing
	request   reaction
	value     []byte // to set when it is granted; nil: leave it as it is
	device    string // empty: ask bakeryd
	create    bool
	argv      []string
}

func newLock(a *app) *cobra.Command {
	var (
		o                lockOptions
		onRequest, value string
	)
	cmd := &cobra.Command{
		Use:     "lock [flags] NAME -- COMMAND [ARG...]",
		Short:   "Run a command under a lock",
		Long:    lockLong,
		Example: lockExample,
		Args:    cobra.ArbitraryArgs,

		ValidArgsFunction:     a.completeLock,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.settle(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("device") && o.device == "" {
				return usageError("--device is empty")
			}
			if cmd.Flags().Changed("value") {
				o.value = []byte(value)
			}
			if err := o.parseArgs(args); err != nil {
				return err
			}
			var err error
			if o.request, err = parseReaction(onRequest); err != nil {
				return err
			}
			return a.lock(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.SortFlags = false
	o.addFlags(cmd)
	f.BoolVarP(&o.close, "close", "o", false, "do not let COMMAND inherit the lock: what it leaves running does not hold it")
	f.BoolVar(&o.contained, "require-containment", false, "do not run COMMAND if it cannot get a cgroup of its own")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "say when the lock is granted, and how COMMAND is contained")
	f.StringVar(&o.onLost, "on-lost", "", "when COMMAND is told to stop, also run `CMD` by the shell, once")
	f.StringVar(&onRequest, "on-request", "", "when somebody asks for the lock, send COMMAND a signal or run a command: `SIGNAL|CMD`")
	f.StringVar(&value, "value", "", "set the value of the lock to `TEXT` before COMMAND begins; not if it is shared")
	f.StringVar(&o.device, "device", "", "take it on the lockspace at `PATH`, without bakeryd")
	f.BoolVar(&o.create, "create", false, "make the lockspace of --device if the file does not exist")
	return cmd
}

func usageError(format string, args ...any) *failure {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...), hint: "see bakeryctl lock --help"}
}

// parseArgs checks what needs neither disk nor bakeryd.
func (o *lockOptions) parseArgs(args []string) error {
	if len(args) == 0 {
		return usageError("no lock given")
	}
	o.name, o.argv = args[0], args[1:]
	if err := layout.ValidateLockName(o.name); err != nil {
		return usageError("%w", err)
	}
	switch {
	case len(o.argv) > 0 && o.argv[0] == "--":
		o.argv = o.argv[1:]
	case len(o.argv) > 0 && strings.HasPrefix(o.argv[0], "-"):
		return &failure{code: exitUsage, err: fmt.Errorf("%s comes after the lock's name", o.argv[0]),
			hint: "flags go before NAME, and -- before a command that begins with a dash"}
	}
	if len(o.argv) == 0 {
		return usageError("no command given to run under %q", o.name)
	}
	if o.value != nil && o.mode == layout.Shared {
		return usageError("--value is set by who holds the lock alone, not with --shared")
	}
	if len(o.value) > layout.MaxValue {
		return usageError("--value has %d bytes, want at most %d", len(o.value), layout.MaxValue)
	}
	if o.create && o.device == "" {
		return usageError("--create makes the lockspace of --device, which is not given")
	}
	return nil
}

// held is a lock held, by bakeryd for us or by this process itself.
type held interface {
	Token() layout.Ticket
	Deadline() time.Time
	StopAt() time.Duration // on CLOCK_BOOTTIME
	Grace() time.Duration
	Warned() <-chan struct{}
	Lost() <-chan struct{}
	Err() error
}

// grant is a held lock and what running a command under it takes.
type grant struct {
	held
	hostID  int
	inherit func() (client.Descriptor, error) // of what the command holds the lock by; nil: it cannot, or must not
	silent  <-chan struct{}                   // gets one when bakeryd has been gone for two seconds; nil: there is none
	wanted  <-chan client.Request             // gets what others ask for the lock by; nil: nothing
	weak    string                            // why bakeryd cannot contain the command; empty: it can, or there is none
	there   func() bool                       // reports whether bakeryd takes over what is left running; nil: it never does
	session string                            // by which bakeryd knows the hold; empty: it is this process's own
	socket  string                            // of that bakeryd
	bound   bool                              // the lock ends with this process, so the command must as well
	release func() error
}

// lock runs the command under the lock.
func (a *app) lock(ctx context.Context, o lockOptions) (err error) {
	path, err := findCommand(o.argv[0])
	if err != nil {
		return err
	}
	l := launch{path: path, argv: o.argv, lock: o.name, signals: inheritedSignals(), contained: o.contained, verbose: o.verbose,
		onLost: o.onLost, onRequest: o.request, stdin: a.stdin, stdout: a.stdout, stderr: a.stderr}
	if o.device == "" {
		l.session, l.socket = client.NewSession(), a.socket
	}
	signals := openInbox(l.signals)
	defer func() { signals.close(err) }()
	p := prepareCommand(l, signals, o.device == "" && !o.nonblock)
	g, err := a.acquire(ctx, o, l.session, signals, func(ahead, queued int) { p.sessionKnown() })
	if err != nil {
		p.abandon()
		return err
	}
	code, err := runUnder(g, signals, l, p)
	if err == nil && code != 0 {
		err = &failure{code: code}
	}
	return err
}

// acquire waits for the lock, or for a signal that ends the wait. onWaiting is called with the
// place in the queue, as the line at a terminal is.
func (a *app) acquire(ctx context.Context, o lockOptions, session string, signals *inbox, onWaiting func(ahead, queued int)) (*grant, error) {
	ctx, listen := signals.interrupts(ctx)
	line := startWaitLine(a.stderr, o.name)
	take := func(ctx context.Context, o lockOptions, onWaiting func(ahead, queued int)) (*grant, error) {
		return a.askBakeryd(ctx, o, session, onWaiting, line.warn)
	}
	if o.device != "" {
		take = a.joinAndTake
	}
	g, err := take(ctx, o, func(ahead, queued int) {
		line.update(ahead, queued)
		onWaiting(ahead, queued)
	})
	line.stop()
	listen()
	var by interruption
	if !errors.As(context.Cause(ctx), &by) {
		return g, err
	}
	if g != nil {
		_ = g.release() // the signal came with the grant; nothing ran
	}
	return nil, &failure{code: exitSignal + int(by.signal)}
}

// askBakeryd takes the lock from bakeryd.
func (a *app) askBakeryd(ctx context.Context, o lockOptions, session string, onWaiting func(ahead, queued int), warn func(string)) (*grant, error) {
	h, err := client.New(a.socket).Lock(ctx, o.name, client.Options{
		Mode: o.mode, NonBlock: o.nonblock, Timeout: o.timeout, Session: session, Confirm: true,
		PID: os.Getpid(), Command: strings.Join(o.argv, " "), Witness: !o.close, OnWaiting: onWaiting,
		OnWarning: warn, Requests: !o.request.none(),
	})
	if err != nil {
		return nil, a.refused(err, o)
	}
	if o.value != nil {
		if err := h.SetValue(ctx, o.value); err != nil {
			_ = h.Unlock() // the first error is the one to tell
			return nil, a.ofHold(err)
		}
	}
	g := &grant{held: h, hostID: h.HostID(), silent: h.Silent(), wanted: h.Requests(), weak: h.Uncontainable(), session: h.Session(), socket: a.socket, release: h.Unlock}
	if !o.close {
		g.inherit, g.there = h.Inherit, h.Connected
	}
	return g, nil
}

// refused gives bakeryd's refusal an exit code.
func (a *app) refused(err error, o lockOptions) *failure {
	if errors.Is(err, client.ErrBusy) || errors.Is(err, client.ErrTimeout) {
		return &failure{code: o.conflict} // silent, as flock(1) is
	}
	f := &failure{code: exitUnavailable, err: err}
	var refusal *client.Error
	if errors.As(err, &refusal) {
		f.hint = refusal.Hint
		switch refusal.Code {
		case api.CodeInvalid:
			f.code = exitUsage
		case api.CodeDevice, api.CodeFull:
			f.code = exitNoDevice
		case api.CodeForbidden:
			f.code = exitForbidden
		case api.CodeLost:
			f.code = exitLost
		}
		return f
	}
	switch {
	case errors.Is(err, syscall.EACCES):
		f.hint = hintClosed
	case errors.Is(err, client.ErrUnreachable):
		f.hint = "is bakeryd running? See systemctl status bakeryd; --socket names another socket"
	}
	return f
}
