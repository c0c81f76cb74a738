package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"jettison/e2e/build"
)

// earlyoomLog is the guest's file with earlyoom's output.
const earlyoomLog = "/var/log/earlyoom.log"

// earlyoom fetches Debian's package and the C library that it needs, or finds them in the cache,
// and maps file of the guest to file on this machine. With a filled cache it needs no network.
func earlyoom(ctx context.Context, say Say) (map[string]string, error) {
	dir, err := build.Cached("earlyoom-bookworm", say, func(dir string) error {
		if _, err := build.Run(ctx, dir, nil, "apt-get", "-q", "download", "earlyoom", "libc6"); err != nil {
			if _, err := build.Run(ctx, "", nil, "apt-get", "-q", "update"); err != nil {
				return fmt.Errorf("%w: run `apt-get update` as root", err)
			}
			if _, err := build.Run(ctx, dir, nil, "apt-get", "-q", "download", "earlyoom", "libc6"); err != nil {
				return err
			}
		}
		debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(debs) != 2 {
			return fmt.Errorf("apt-get download earlyoom libc6 left %d files", len(debs))
		}
		for _, deb := range debs {
			if _, err := build.Run(ctx, dir, nil, "dpkg", "-x", deb, filepath.Join(dir, "root")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	files := map[string]string{"/usr/local/bin/earlyoom": filepath.Join(root, "usr/bin/earlyoom")}
	for guest, name := range map[string]string{
		"/lib64/ld-linux-x86-64.so.2": "ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6": "libc.so.6",
	} {
		for _, lib := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"} {
			if path := filepath.Join(root, lib, name); isFile(path) {
				files[guest] = path
			}
		}
		if files[guest] == "" {
			return nil, fmt.Errorf("%s has no %s: remove the folder and run again", dir, name)
		}
	}
	return files, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// EarlyOOM is earlyoom running on a node.
type EarlyOOM struct {
	node *Node
	pid  int
}

// StartEarlyOOM runs Debian's earlyoom, which sends SIGKILL when MemAvailable falls to the
// threshold (bytes), and waits until it watches memory.
func (n *Node) StartEarlyOOM(ctx context.Context, threshold int64) (*EarlyOOM, error) {
	files, err := earlyoom(ctx, n.say)
	if err != nil {
		return nil, fmt.Errorf("start earlyoom: %w", err)
	}
	if !n.earlyoom {
		for to, from := range files {
			if err := n.Upload(ctx, from, to); err != nil {
				return nil, fmt.Errorf("start earlyoom: %w", err)
			}
		}
		n.earlyoom = true
	}
	if _, err := n.Shell(ctx, "rm -f "+earlyoomLog); err != nil {
		return nil, err
	}
	size := strconv.FormatInt(threshold>>10, 10)
	// As Debian's unit runs it: nice -20, oom_score_adj -100. On a node without swap the swap
	// threshold counts as crossed.
	pid, err := n.Start(ctx, earlyoomLog, "/usr/local/bin/earlyoom", "-p", "-r", "0", "-M", size+","+size)
	if err != nil {
		return nil, fmt.Errorf("start earlyoom: %w", err)
	}
	err = n.Eventually(ctx, callDeadline, "earlyoom says what it watches for", func(ctx context.Context) error {
		text, err := n.ReadFile(ctx, earlyoomLog, 0)
		if err == nil && !strings.Contains(string(text), "SIGKILL when mem") {
			err = fmt.Errorf("earlyoom printed %q", text)
		}
		return err
	})
	return &EarlyOOM{node: n, pid: pid}, err
}

// Log returns the last lines that earlyoom printed.
func (e *EarlyOOM) Log() string { return e.node.Tail(earlyoomLog, 20) }

// Stop ends earlyoom.
func (e *EarlyOOM) Stop(ctx context.Context) error {
	_, err := e.node.Shell(ctx, "kill -9 "+strconv.Itoa(e.pid))
	return err
}
