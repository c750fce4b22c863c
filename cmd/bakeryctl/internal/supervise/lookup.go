package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// FindCommand returns the path that execvp(3) would execute. A mistyped command is thus detected
// before the wait for the lock. exec.LookPath differs from execvp without PATH, and with files that
// are not executable.
func FindCommand(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, commandFailure(name, checkExecutable(name))
	}
	path, ok := os.LookupEnv("PATH")
	if !ok {
		path = "/bin:/usr/bin"
	}
	found := error(fs.ErrNotExist)
	for _, dir := range filepath.SplitList(path) {
		if name == "" {
			break
		}
		candidate := strings.TrimSuffix(cmp.Or(dir, "."), "/") + "/" + name
		err := checkExecutable(candidate)
		if err == nil {
			return candidate, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			found = err
		}
	}
	return "", commandFailure(name, found)
}

// checkExecutable returns an error if the file at path, which has a slash, cannot be executed.
func checkExecutable(path string) error {
	_, err := exec.LookPath(path)
	return err
}

// commandFailure returns the failure of running a command, or nil if err is nil.
func commandFailure(name string, err error) error {
	if cause, ok := errors.AsType[syscall.Errno](err); ok {
		err = cause // the message below has the name
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		hint := "check the name of COMMAND, or give its path: no directory of PATH has it"
		if name == "" || strings.Contains(name, "/") {
			hint = "check the path of COMMAND"
		}
		return &cli.Failure{Code: cli.ExitNotFound, Err: fmt.Errorf("%s: command not found", cmp.Or(name, `""`)), Hint: hint}
	}
	return &cli.Failure{Code: cli.ExitNotExec, Err: fmt.Errorf("%s: cannot be run: %w", name, err), Hint: "COMMAND must be a file that this user may execute: see ls -l"}
}
