package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/guestapi"
)

// call sends a request to the guest's init. body and answer may be nil. A []byte body is sent
// unchanged, others as JSON.
func (n *Node) call(ctx context.Context, method, path string, body, answer any) error {
	return n.callWithin(ctx, 2*callDeadline, method, path, body, answer)
}

func (n *Node) callWithin(ctx context.Context, limit time.Duration, method, path string, body, answer any) error {
	var out io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		out = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return err
		}
		out = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.address[guestapi.PortControl]+path, out)
	if err != nil {
		return err
	}
	res, err := n.http.Do(req)
	if err != nil {
		return fmt.Errorf("guest: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("guest: %s %s: %s", method, path, bytes.TrimSpace(text))
	}
	switch a := answer.(type) {
	case nil:
		return nil
	case *[]byte:
		*a, err = io.ReadAll(res.Body)
		return err
	default:
		return json.NewDecoder(res.Body).Decode(a)
	}
}

// Exec runs a command in the guest and returns its output and exit code. The error reports a
// command that could not be run.
func (n *Node) Exec(ctx context.Context, argv ...string) (guestapi.ExecResult, error) {
	return n.exec(ctx, guestapi.ExecRequest{Argv: argv, Limit: callDeadline})
}

func (n *Node) exec(ctx context.Context, req guestapi.ExecRequest) (res guestapi.ExecResult, err error) {
	if err := n.callWithin(ctx, req.Limit+callDeadline, "POST", "/exec", req, &res); err != nil {
		return res, err
	}
	if res.Error != "" {
		return res, fmt.Errorf("guest: run %v: %s", req.Argv, res.Error)
	}
	return res, nil
}

// Shell runs a line of shell in the guest and returns its stdout. An exit code other than 0 is an
// error.
func (n *Node) Shell(ctx context.Context, line string) (string, error) {
	res, err := n.Exec(ctx, "/bin/sh", "-c", line)
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("guest: %q ended with %d: %s%s", line, res.Code, res.Stderr, res.Stdout)
	}
	return string(res.Stdout), err
}

// Start runs a command in the guest's background, appends its output to a file there, and returns
// its process id.
func (n *Node) Start(ctx context.Context, output string, argv ...string) (pid int, err error) {
	res, err := n.exec(ctx, guestapi.ExecRequest{Argv: argv, Detach: output})
	return res.PID, err
}

// ReadFile reads a file of the guest from an offset on.
func (n *Node) ReadFile(ctx context.Context, path string, from int) ([]byte, error) {
	var content []byte
	err := n.call(ctx, "GET", "/file?from="+strconv.Itoa(from)+"&path="+url.QueryEscape(path), nil, &content)
	return content, err
}

// WriteFile writes a file of the guest, and the folders it needs.
func (n *Node) WriteFile(ctx context.Context, path string, content []byte) error {
	return n.call(ctx, "PUT", "/file?path="+url.QueryEscape(path), bytes.NewReader(content), nil)
}

// Upload copies a file of this machine to the guest.
func (n *Node) Upload(ctx context.Context, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return n.call(ctx, "PUT", "/file?path="+url.QueryEscape(to), io.Reader(f), nil)
}

// Import loads an image tar of the guest into the runtime. CRI-O imports no tar: it pulls the images
// from the guest's registry.
func (n *Node) Import(ctx context.Context, tar string) error {
	if n.Runtime == guestapi.CRIO {
		return n.pull(ctx, tar)
	}
	res, err := n.exec(ctx, guestapi.ExecRequest{Argv: []string{"ctr", "-n", "k8s.io", "images", "import", tar}, Limit: importDeadline})
	if err == nil && res.Code != 0 {
		err = fmt.Errorf("guest: import of %s ended with %d: %s%s", tar, res.Code, res.Stderr, res.Stdout)
	}
	return err
}

func (n *Node) pull(ctx context.Context, tar string) error {
	ctx, cancel := context.WithTimeout(ctx, importDeadline)
	defer cancel()
	var offer guestapi.Offer
	if err := n.call(ctx, "POST", "/registry?path="+url.QueryEscape(tar), nil, &offer); err != nil {
		return err
	}
	for _, name := range offer.Images {
		if _, err := n.images.PullImage(ctx, &cri.PullImageRequest{Image: imageSpec(name)}); err != nil {
			return fmt.Errorf("pull %s of %s: %w", name, tar, err)
		}
	}
	return nil
}

// PinImage pins an image in the runtime, which then lists it as pinned and rejects its removal.
func (n *Node) PinImage(ctx context.Context, name string) error {
	if n.Runtime != guestapi.CRIO {
		_, err := n.Shell(ctx, "ctr -n k8s.io images label "+name+" io.cri-containerd.pinned=pinned")
		return err
	}
	settings := fmt.Sprintf("[crio.image]\npinned_images = [%q]\n", name)
	if err := n.WriteFile(ctx, "/etc/crio/crio.conf.d/pinned.conf", []byte(settings)); err != nil {
		return err
	}
	_, err := n.Shell(ctx, "kill -HUP "+n.RuntimePID())
	return err
}

// Memory reads the node's memory figures.
func (n *Node) Memory(ctx context.Context) (m guestapi.Memory, err error) {
	return m, n.call(ctx, "GET", "/memory", nil, &m)
}

// Sample starts the guest's independent sampler. The returned function stops it and returns its
// result.
func (n *Node) Sample(ctx context.Context, req guestapi.SampleRequest) (stop func() (guestapi.Sample, error), err error) {
	if err := n.call(ctx, "POST", "/sample/start", req, nil); err != nil {
		return nil, err
	}
	return func() (s guestapi.Sample, err error) {
		return s, n.call(ctx, "POST", "/sample/stop", nil, &s)
	}, nil
}

// Ballast changes the available memory by memory outside of all pods.
func (n *Node) Ballast(ctx context.Context, req guestapi.BallastRequest) (m guestapi.Memory, err error) {
	return m, n.call(ctx, "POST", "/ballast", req, &m)
}

// KernelLog returns the guest's kernel log.
func (n *Node) KernelLog(ctx context.Context) (string, error) { return n.Shell(ctx, "dmesg") }

var oomLine = regexp.MustCompile(`(?m)^.*(oom-kill:|[Oo]ut of memory: Killed process).*$`)

// OOMFired reads the kernel's own counter of OOM kills. It starts no process in the guest, so it
// works where a command would fail.
func (n *Node) OOMFired(ctx context.Context) (bool, error) {
	m, err := n.Memory(ctx)
	return m.OOMKills > 0, err
}

// OOMKills returns the kernel log's lines about OOM kills, and checks them against /proc/vmstat,
// which counts them without a ring buffer.
func (n *Node) OOMKills(ctx context.Context) ([]string, error) {
	log, err := n.KernelLog(ctx)
	if err != nil {
		return nil, err
	}
	m, err := n.Memory(ctx)
	if err != nil {
		return nil, err
	}
	lines := oomLine.FindAllString(log, -1)
	if m.OOMKills > 0 && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("/proc/vmstat: oom_kill %d", m.OOMKills))
	}
	return lines, nil
}

// Tail returns the last lines of a file of the guest, or the reason why it cannot be read. It
// serves failure messages.
func (n *Node) Tail(path string, lines int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	content, err := n.ReadFile(ctx, path, 0)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
