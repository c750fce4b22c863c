package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bakeryd/bakeryd/cmd/bakeryctl/internal/cli"
)

// FindCommand returns the path that execvp(3) would execute. A mistyped command is thus detected
// before the wait for the lock.
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
		if dir == "" {
			dir = "."
		}
		candidate := strings.TrimSuffix(dir, "/") + "/" + name
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

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// commandFailure returns the failure of running a command, or nil if err is nil.
func commandFailure(name string, err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err // the message below has the name
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return &cli.Failure{Code: cli.ExitNotFound, Err: fmt.Errorf("%s: command not found", name)}
	}
	return &cli.Failure{Code: cli.ExitNotExec, Err: fmt.Errorf("%s: cannot be run: %w", name, err)}
}
