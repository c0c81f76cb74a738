package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"jettison/e2e/build"
)

// LiveVariable is set for tests that run in the guest: it allows them to change the node.
const LiveVariable = "JETTISON_LIVE"

// testsFolder is on the guest's disk: a test binary in a tmpfs would use memory that tests measure.
const testsFolder = "/var/lib/tests/"

// RunTests builds the test binary of a package of this checkout ("./cgroup"), runs it in the guest
// as root with these arguments ("-test.run=^TestLive", "-test.v"), and returns its output. An exit
// code other than 0 is an error. No process of the tests runs on afterwards. Only ctx and
// -test.timeout bound it: a benchmark may run for long.
func (n *Node) RunTests(ctx context.Context, pkg string, args ...string) (output string, err error) {
	name := path.Base(pkg) + ".test"
	binary, err := buildTests(ctx, pkg, name)
	if err != nil {
		return "", err
	}
	// Each run has its own folder for the output and for files that tests leave.
	dir := testsFolder + strconv.FormatInt(time.Now().UnixNano(), 36) + "/"
	if err := n.Upload(ctx, binary, dir+name); err != nil {
		return "", err
	}
	if err := n.uploadTestdata(ctx, pkg, dir); err != nil {
		return "", err
	}
	line := "cd " + dir + " && " + LiveVariable + "=1 ./" + name + ` "$@"; echo $? > code.tmp; mv code.tmp code`
	pid, err := n.Start(ctx, dir+"output", append([]string{"/bin/sh", "-c", line, "sh"}, args...)...)
	if err != nil {
		return "", err
	}
	code, err := n.waitFile(ctx, dir+"code")
	text, readErr := n.ReadFile(context.WithoutCancel(ctx), dir+"output", 0)
	if err == nil {
		err = readErr
	}
	if err == nil && code != "0" {
		err = fmt.Errorf("exit code %s", code)
	}
	if err != nil {
		// The tests run in a separate session: processes that it did not stop end with the
		// session.
		_, killErr := n.Shell(context.WithoutCancel(ctx), fmt.Sprintf("kill -9 -%d 2> /dev/null; true", pid))
		err = errors.Join(err, killErr)
		err = fmt.Errorf("run the tests of %s in the guest: %w\n%s", pkg, err, build.Tail(string(text), 16000))
	}
	return string(text), err
}

// buildTests builds a package's test binary for the guest, which has neither a C library nor Go.
func buildTests(ctx context.Context, pkg, name string) (binary string, err error) {
	preparing.Lock()
	defer preparing.Unlock()
	root, err := build.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	binary = filepath.Join(root, "bin", name)
	if err := os.Remove(binary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	_, err = build.Run(ctx, root, []string{"CGO_ENABLED=0"}, "go", "test", "-c", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, pkg)
	if err == nil {
		if _, err = os.Stat(binary); err != nil { // go prints that on stdout and exits with 0
			err = fmt.Errorf("%s has no tests", pkg)
		}
	}
	return binary, err
}

// uploadTestdata copies the package's testdata, if it has any, to the folder where its tests read
// it.
func (n *Node) uploadTestdata(ctx context.Context, pkg, dir string) error {
	root, err := build.ModuleRoot(ctx)
	if err != nil || !isDir(filepath.Join(root, pkg, "testdata")) {
		return err
	}
	tar, err := build.Run(ctx, filepath.Join(root, pkg), nil, "tar", "-c", "testdata")
	if err != nil {
		return err
	}
	if err := n.WriteFile(ctx, dir+"testdata.tar", tar); err != nil {
		return err
	}
	_, err = n.Shell(ctx, "cd "+dir+" && busybox tar -xf testdata.tar")
	return err
}

// waitFile waits until a file of the guest exists and returns its one word. It polls once a second
// to disturb a measurement little.
func (n *Node) waitFile(ctx context.Context, name string) (word string, err error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if text, err := n.ReadFile(ctx, name, 0); err == nil {
			return strings.TrimSpace(string(text)), nil
		}
		select {
		case <-tick.C:
		case <-n.ended:
			return "", errors.New("QEMU ended")
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
