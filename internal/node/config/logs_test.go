package config

import (
	"slices"
	"testing"
)

func TestLogs(t *testing.T) {
	for _, c := range []struct {
		text  string
		bytes int64
		files int32
		err   string // in both kinds of files; line 3 is the first of these
	}{
		{"", 10 << 20, 5, ""},
		{"containerLogMaxSize: 5Mi\ncontainerLogMaxFiles: 2\n", 5 << 20, 2, ""},
		{"containerLogMaxSize: \"\"\ncontainerLogMaxFiles: null\n", 10 << 20, 5, ""},
		{"containerLogMaxSize: 1000000\n", 1000000, 5, ""},
		{"containerLogMaxSize: -1\n", -1, 5, ""},
		{"containerLogMaxSize: 1E\n", 1e18, 5, ""},
		{"containerLogMaxFiles: 1\n", 0, 0, "3: containerLogMaxFiles: invalid configuration: containerLogMaxFiles must be greater than 1"},
		{"containerLogMaxFiles: 0\n", 0, 0, "3: containerLogMaxFiles: invalid configuration: containerLogMaxFiles must be greater than 1"},
		{"containerLogMaxFiles: 2.5\n", 0, 0, `3: containerLogMaxFiles: want a whole number, got "2.5"`},
		{"containerLogMaxSize: ten\n", 0, 0, `3: containerLogMaxSize: failed to parse container log max size "ten": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		{"containerLogMaxSize: 100E\n", 0, 0, `3: containerLogMaxSize: failed to parse container log max size "100E": invalid max log size`},
		{"containerLogMaxSize: 1e-99990000\n", 0, 0, `3: containerLogMaxSize: failed to parse container log max size "1e-99990000": the exponent is not between -18 and 18`},
	} {
		for _, kind := range []string{own, kubelet} {
			l, err := Parse([]byte(kind + c.text))
			switch {
			case err != nil && err.Error() != c.err:
				t.Errorf("error of %q:\n got %v\nwant %s", c.text, err, c.err)
			case err == nil && (c.err != "" || l.LogMaxBytes != c.bytes || l.ContainerLogMaxFiles != c.files):
				t.Errorf("rotation of %q = %d bytes, %d files", c.text, l.LogMaxBytes, l.ContainerLogMaxFiles)
			}
		}
	}
	const zero = "containerLogMaxSize: 0\n"
	if _, err := Parse([]byte(own + zero)); err == nil || err.Error() != "3: containerLogMaxSize: 0 rotates every log in each pass: use a negative size to disable rotation" {
		t.Errorf("containerLogMaxSize 0 in the agent's file: error %v, want one", err)
	}
	if l, err := Parse([]byte(kubelet + zero)); err != nil || !slices.Contains(l.Warnings, "containerLogMaxSize: 0 rotates every log in each pass: use a negative size to disable rotation") {
		t.Errorf("containerLogMaxSize 0 in a kubelet's file: got %+v, error %v, want a warning", l, err)
	}
}
