package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"
)

const (
	// pingAfter is the time without a frame after which the pod must answer a ping. Its answer may
	// take maxSilence, because the exec may take seconds to start.
	pingAfter  = 5 * time.Second
	maxHeaders = 64 << 10 // bytes of a response
)

// link is the connection to the agent's pod by a running kubectl exec.
type link struct {
	conn   *http.ClientConn
	target *Target
	kill   context.CancelFunc
	ended  chan struct{} // closed when kubectl has exited
	err    error         // of kubectl; written before ended is closed
	reason tail
}

// exec starts jettison tunnel in a pod. It does not wait until the pod answers.
func (t *Target) exec(ctx context.Context, pod string) (*link, error) {
	ctx, kill := context.WithCancel(ctx)
	l := &link{target: t, kill: kill, ended: make(chan struct{})}
	cmd := t.kubectl(ctx, &l.reason, "exec", "--stdin", pod, "--container="+container, "--",
		program, name)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	err := cmp.Or(inErr, outErr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		kill()
		return nil, t.failed("exec", "", err)
	}
	conn := newStream(out, in)
	go func() {
		l.err = cmd.Wait() // closes out, which ends the connection
		close(l.ended)
	}()
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		Protocols:   http2Only(), DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: maxSilence},
	}
	if l.conn, err = transport.NewClientConn(ctx, "http", "jettison:80"); err != nil {
		return nil, l.lost(err)
	}
	return l, nil
}

// usable reports whether the connection accepts requests; nil does not.
func (l *link) usable() bool {
	return l != nil && l.conn.Err() == nil && l.conn.Available() > 0
}

// close ends the connection and kubectl; nil has neither.
func (l *link) close() {
	if l == nil {
		return
	}
	l.kill()
	<-l.ended
}

// lost closes a broken connection and returns the reason: that of kubectl, else err.
func (l *link) lost(err error) error {
	l.close()
	reason := l.reason.String()
	if exit := new(exec.ExitError); errors.As(l.err, &exit) && exit.Exited() { // and not killed here
		return l.target.failed("exec", reason, exit)
	}
	err = fmt.Errorf("connection lost: %w", err)
	if reason != "" { // perhaps only a warning of long ago
		err = fmt.Errorf("%w: %s", err, reason)
	}
	return l.target.failed("exec", "", err)
}
