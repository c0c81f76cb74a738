package main

import (
	"bytes"
	"strings"
	"testing"
)

// Any address other than loopback is bad usage; the error describes port forwarding.
func TestUIListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:5388", "[::]:5388", ":5388", "10.0.0.1:5388"} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), []string{"ui", "--socket", "/nonexistent", "--listen", address}, &out, &errs)
		if code != exitUsage || out.Len() > 0 || !strings.Contains(errs.String(), "ssh -L 5388:127.0.0.1:5388") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("--listen %s: exit code %d, want 2 with the ssh command: %s%s", address, code, &out, &errs)
		}
	}
}

// The help of ui has an example with ssh, and shell completion knows the command.
func TestUIHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"ui", "--help"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "ssh -t -L 5388") {
		t.Errorf("exit code %d, want 0 with the expected text: %s%s", code, &out, &errs)
	}
	out.Reset()
	if code := execute(t.Context(), []string{"__complete", "u"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "ui\tServe a page") {
		t.Errorf("exit code %d, want 0 with the expected text: %s%s", code, &out, &errs)
	}
}
