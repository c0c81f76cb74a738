package build

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Run runs a command in a folder, with more environment, and returns its output. The error of a
// failed command has the end of its stderr.
func Run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		detail := ""
		if errors.As(err, &exit) {
			detail = ": " + Tail(strings.TrimSpace(string(exit.Stderr)), 2000)
		}
		return nil, fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, detail)
	}
	return out, nil
}

// Tail returns the last n bytes of a text.
func Tail(text string, n int) string {
	if len(text) > n {
		return "..." + text[len(text)-n:]
	}
	return text
}

// ModuleRoot returns the folder of this checkout's go.mod.
func ModuleRoot(ctx context.Context) (string, error) {
	out, err := Run(ctx, "", nil, "go", "list", "-m", "-f", "{{.Dir}}", "jettison")
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
