package main

import (
	"bytes"
	"strings"
	"testing"

	"jettison/internal/base/commandline"
)

const (
	exitOK     = commandline.ExitOK
	exitFailed = commandline.ExitFailed
	exitUsage  = commandline.ExitUsage
)

func run(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = execute(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsageErrorsAreOneLine(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"version"}, exitOK, ""},
		{[]string{"verson"}, exitUsage, `unknown command "verson": did you mean "version"?`},
		{[]string{"version", "now"}, exitUsage, "version takes no arguments"},
		{[]string{"--vorsion"}, exitUsage, "did you mean --version?"},
	} {
		code, _, stderr := run(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || c.want != "" && strings.Count(stderr, "\n") != 1 {
			t.Errorf("arguments %v: exit code %d, want %d and %q, got %s", c.args, code, c.code, c.want, stderr)
		}
	}
}
