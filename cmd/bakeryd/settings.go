package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
)

// fenceSetting matches the fence command in a file of settings. It may have a password.
var fenceSetting = regexp.MustCompile(`(?m)^[ \t]*(export[ \t]+)?BAKERYD_FENCE_EXEC=`)

// warnOfSettings warns of each file of settings in a directory that has a fence command and that every
// user can read.
func warnOfSettings(dir string, log *slog.Logger) {
	files, _ := filepath.Glob(filepath.Join(dir, "*.env")) // the pattern is valid
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o004 == 0 {
			continue
		}
		if text, err := os.ReadFile(file); err == nil && fenceSetting.Match(text) {
			log.Warn("every user can read the fence command, which may have a password", "path", file, "remedy", "chmod 0640 "+file)
		}
	}
}
