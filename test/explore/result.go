package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var statesLogged = regexp.MustCompile(`(\d+) states\b`)

// goResults reads the output of go test -json: each test that logs "N states" is a scenario. It
// copies to log the output of failed tests, and output outside of tests.
func goResults(output io.Reader, log io.Writer) (map[string]string, error) {
	said, states := map[string]string{}, map[string][]int{}
	var skipped []string
	for d := json.NewDecoder(output); ; {
		var e struct{ Action, Test, Output string }
		switch err := d.Decode(&e); {
		case err == io.EOF && len(skipped) > 0:
			return nil, fmt.Errorf("tests were skipped: %v", skipped)
		case err == io.EOF:
			return joined(states), nil
		case err != nil:
			io.Copy(log, io.MultiReader(d.Buffered(), output))
			return nil, fmt.Errorf("read the output of go test: %w", err)
		}
		switch {
		case e.Test == "" && e.Output != "PASS\n" && !strings.HasPrefix(e.Output, "ok "):
			io.WriteString(log, e.Output)
		case e.Action == "output":
			said[e.Test] += e.Output
			if m := statesLogged.FindStringSubmatch(e.Output); m != nil {
				n, err := strconv.Atoi(m[1])
				if err != nil {
					return nil, err
				}
				states[e.Test] = append(states[e.Test], n)
			}
		case e.Action == "skip":
			skipped = append(skipped, e.Test)
			fallthrough
		case e.Action == "fail":
			io.WriteString(log, said[e.Test])
			fallthrough
		case e.Action == "pass":
			delete(said, e.Test)
		}
	}
}

var modelLine = regexp.MustCompile(`^(\S+) +(\S+) +(.*?) +(\d+) states, depth`)

// modelResults reads what test/model/run prints, and copies it to log.
func modelResults(output io.Reader, log io.Writer) (map[string]string, error) {
	states := map[string][]int{}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		if m := modelLine.FindStringSubmatch(lines.Text()); m != nil {
			n, err := strconv.Atoi(m[4])
			if err != nil {
				return nil, err
			}
			name := strings.Join(m[1:4], " ")
			states[name] = append(states[name], n)
		}
	}
	return joined(states), lines.Err()
}

// joined writes the numbers of each scenario in order: several explorations of one test may come in
// any order.
func joined(states map[string][]int) map[string]string {
	all := map[string]string{}
	for name, list := range states {
		slices.Sort(list)
		all[name] = strings.Trim(fmt.Sprint(list), "[]")
	}
	return all
}
