package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"jettison/e2e/vm"
)

// program is the binary that `make build` builds for this machine.
const program = "bin/jettison"

// page runs jettison ui on this machine over the node's socket, and prints its address. The
// returned function ends it.
func (d *demo) page(ctx context.Context, n *vm.Node) (closePage func(), err error) {
	dir, err := os.MkdirTemp("", "jettison-demo") // a socket's path is short
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, "ui", "--listen", "127.0.0.1:0", "--socket", filepath.Join(dir, "s.sock"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	closePage = func() {
		cancel()
		_ = cmd.Wait() // it was signalled to end
		_ = os.RemoveAll(dir)
	}
	failed := func(err error) (func(), error) {
		cancel()
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("open the page: %w", err)
	}
	if err := n.Relay(ctx, filepath.Join(dir, "s.sock")); err != nil {
		return failed(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(fmt.Errorf("%w: run make build", err))
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		closePage()
		return nil, fmt.Errorf("open the page: %s ui printed no address: %w", program, err)
	}
	d.address = strings.TrimSpace(address)
	d.print("open the page in a browser during the demo: %s", d.address)
	d.print("in a second terminal: %s events -f --socket %s", program, filepath.Join(dir, "s.sock"))
	return closePage, nil
}
