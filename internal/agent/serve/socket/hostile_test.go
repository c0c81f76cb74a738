package socket

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/internal/agent/objects/podstore"
)

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// A slow client blocks no other.
func TestSlowClients(t *testing.T) {
	path, pods := start(t, Options{}, patient)
	send(t, dial(t, path), slowHeader)
	send(t, dial(t, path), slowBody)
	send(t, dial(t, path), "DELETE /v1/pods/x HTTP/1.1\r\nHost: j\r\n\r\n")
	if got := ask(t, client(t, path), "PUT", "/v1/pods", "["+pod("quick")+"]"); got.status != 200 {
		t.Errorf("put with slow clients = %d %s, want 200", got.status, got.text)
	}
	if got := pods.Snapshot(); len(got.Pods) != 1 {
		t.Errorf("known pods = %v, want one", got.Pods)
	}
}

// A header and a body that do not end.
var (
	slowHeader = "PUT /v1/pods HTTP/1.1\r\nHos"
	slowBody   = "PUT /v1/pods HTTP/1.1\r\nHost: j\r\nContent-Length: 1000\r\n\r\n[" + pod("slow") + ","
)

// A slow client is closed. Each case sets one limit, so the time of other steps does not matter.
func TestSlowClientsAreClosed(t *testing.T) {
	const soon = 200 * time.Millisecond
	limited := func(change func(*limits)) (net.Conn, *podstore.Store) {
		l := patient
		change(&l)
		path, pods := start(t, Options{}, l)
		return dial(t, path), pods
	}
	header, _ := limited(func(l *limits) { l.header = soon })
	_, _ = io.WriteString(header, slowHeader) // it may be closed before all is written
	if _, err := io.ReadAll(header); err != nil && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read after an incomplete header: error %v, want the end", err)
	}
	body, pods := limited(func(l *limits) { l.request = 5 * soon })
	send(t, body, slowBody)
	res, err := http.ReadResponse(bufio.NewReader(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if res.StatusCode != 408 || string(text) != "{\"error\":\"timeout while reading the body\"}\n" || err != nil {
		t.Errorf("answer to an incomplete body = %d %s, error %v; want 408", res.StatusCode, text, err)
	}
	if got := pods.Snapshot(); len(got.Pods) != 0 {
		t.Errorf("known pods = %v, want none", got.Pods)
	}
	idle, _ := limited(func(l *limits) { l.idle = soon })
	send(t, idle, "DELETE /v1/pods/x HTTP/1.1\r\nHost: j\r\n\r\n")
	if text, err := io.ReadAll(idle); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 404") {
		t.Errorf("read from an idle connection = %s %v, want one answer and the end", text, err)
	}
}

// A client that closes in the middle of a request leaves no trace.
func TestClientThatCloses(t *testing.T) {
	path, pods := start(t, Options{}, patient)
	for range maxOwner - 1 {
		c := dial(t, path)
		send(t, c, "PUT /v1/pods HTTP/1.1\r\nHost: j\r\nContent-Length: 1000\r\n\r\n["+pod("gone")+",")
		c.Close()
	}
	if got := ask(t, client(t, path), "PUT", "/v1/pods", "[]"); got.status != 200 {
		t.Errorf("put after closed clients = %d %s, want 200", got.status, got.text)
	}
	if got := pods.Snapshot(); got.Version != 0 {
		t.Errorf("known pods = %v, want none and version 0", got.Pods)
	}
}

// Input that is not HTTP gets an error from net/http or no answer, and affects no other client.
func TestInputThatIsNotHTTP(t *testing.T) {
	path, _ := start(t, Options{}, patient)
	for _, text := range []string{"\x16\x03\x01\x02\x00", "PUT\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: j\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n", "PUT /v1/pods HTTP/1.1\r\nHost: j\r\nContent-Length: -1\r\n\r\n",
		"PUT /v1/pods HTTP/1.1\r\nHost: j\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "OPTIONS * HTTP/1.1\r\nHost: j\r\nConnection: close\r\n\r\n"} {
		c := dial(t, path)
		_, _ = io.WriteString(c, text) // it may be closed before all is written
		_ = c.(*net.UnixConn).CloseWrite()
		answer, _ := io.ReadAll(c)
		if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 4") && !strings.HasPrefix(string(answer), "HTTP/1.1 5") {
			t.Errorf("answer to %.40q = %.100q, want an error or none", text, answer)
		}
	}
	if got := ask(t, client(t, path), "PUT", "/v1/pods", "[]"); got.status != 200 {
		t.Errorf("put after invalid input = %d %s, want 200", got.status, got.text)
	}
}

// occupy opens a connection and waits until it has its place.
func occupy(path string) (net.Conn, error) {
	c, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "DELETE /v1/pods/x HTTP/1.1\r\nHost: j\r\n\r\n"); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	if res.StatusCode != 404 {
		err = fmt.Errorf("got %s", res.Status)
	}
	return c, err
}

// When all places are in use, a new connection replaces the longest idle one. When all are busy, it
// gets an error.
func TestTooManyConnections(t *testing.T) {
	entered, answer := make(chan struct{}), make(chan struct{})
	path, _ := start(t, Options{State: func() any { entered <- struct{}{}; <-answer; return 1 }}, patient)
	var idle []net.Conn
	for range maxOwner {
		c, err := occupy(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	if status, text, err := rawAsk(path, "PUT", "/v1/pods", "[]"); status != 200 {
		t.Errorf("one connection beyond the limit = %d %s %v, want 200", status, text, err)
	}
	gone := make(chan error, maxOwner) // the server learns a moment after its client which one is idle for longest
	for _, c := range idle {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, err := c.Read(make([]byte, 1))
			gone <- err
		}()
	}
	if err := <-gone; !errors.Is(err, io.EOF) {
		t.Errorf("read of the replaced connection: error %v, want EOF", err)
	}
	for answering := 0; answering < maxOwner; {
		c := dial(t, path)
		send(t, c, "GET /v1/state HTTP/1.1\r\nHost: j\r\n\r\n")
		refused := make(chan struct{})
		go func() {
			_, _ = c.Read(make([]byte, 1)) // an answer begins when all have entered
			close(refused)
		}()
		select {
		case <-entered:
			answering++
		case <-refused: // the replaced connection did not release its place in time, on a starved machine
		}
	}
	for range 2 * maxRefused { // refused connections are bounded in the same way
		dial(t, path)
	}
	status, text, err := rawAsk(path, "PUT", "/v1/pods", "[]")
	if status != 503 || text != `{"error":"too many connections: close some, or try again"}` {
		t.Errorf("one connection beyond busy ones = %d %s %v, want 503 with the error", status, text, err)
	}
	close(answer)
	for deadline := time.Now().Add(10 * time.Second); ; { // until the server has seen it
		if c, err := occupy(path); err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection served after all places were released")
		}
	}
}

// Members use no places of root, one member not all of the others, and strangers none of these.
func TestPlaces(t *testing.T) {
	l := &limited{gid: 7}
	var releases []func()
	seat := func(r role, uid uint32, n int) (served, refused int) {
		for range n {
			c := &conn{role: r}
			if !l.seat(c, uid) {
				continue
			}
			if c.refusal == nil {
				served++
			} else {
				refused++
			}
			c.place.State(http.StateActive) // an idle connection would be replaced
			releases = append(releases, c.release)
		}
		return served, refused
	}
	for _, c := range []struct {
		role            role
		uid             uint32
		served, refused int
	}{
		{member, 1, maxMember, 2}, // of maxMember+2 each
		{member, 2, maxMembers - maxMember, 2},
		{member, 3, 0, maxMember + 2},
		{owner, 0, maxMember + 2, 0},
		{stranger, 4, 0, maxRefused - 4 - maxMember - 2},
		{owner, 0, maxMember + 2, 0},
		{owner, 0, maxMember + 2, 0},
		{owner, 0, maxOwner - 3*(maxMember+2), maxProbes},
	} {
		if served, refused := seat(c.role, c.uid, maxMember+2); served != c.served || refused != c.refused {
			t.Errorf("role %d, user %d: %d served, %d refused; want %d, %d", c.role, c.uid, served, refused, c.served, c.refused)
		}
	}
	for _, f := range releases {
		f()
		f() // a connection may be closed twice
	}
	if left := l.places.Count(ownerKey) + l.places.Count(refusedKey) + l.places.Count(1) + l.all; left != 0 {
		t.Errorf("%d places in use after all releases, want none", left)
	}
}

func TestConcurrentClients(t *testing.T) {
	path, pods := start(t, Options{State: func() any { return 1 }}, patient)
	var all sync.WaitGroup
	for w := range 8 {
		c := client(t, path)
		all.Go(func() {
			for i := range 20 {
				uid := fmt.Sprintf("w%d-%d", w, i)
				for _, r := range [][3]string{{"PUT", "/v1/pods", "[" + pod(uid) + "]"}, {"GET", "/v1/state", ""}, {"DELETE", "/v1/pods/" + uid, ""}} {
					req, _ := http.NewRequest(r[0], "http://jettison"+r[1], strings.NewReader(r[2]))
					res, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode >= 300 {
						t.Errorf("request %v = %s, want success", r, res.Status)
					}
				}
			}
		})
	}
	all.Wait()
	if got := pods.Snapshot(); len(got.Pods) != 0 || got.Version != 8*20*2 {
		t.Errorf("known pods = %v in version %d, want none in version %d", got.Pods, got.Version, 8*20*2)
	}
}

// Close waits for no client: not for a silent one, one in the middle of a request, or one that does
// not read its answer.
func TestCloseDoesNotWaitForClients(t *testing.T) {
	path := filepath.Join(short(t), "s")
	s, err := listen(Options{Path: path, Pods: podstore.New(), State: func() any { return strings.Repeat("x", 8<<20) }}, patient)
	if err != nil {
		t.Fatal(err)
	}
	silent, middle, full := dial(t, path), dial(t, path), dial(t, path)
	send(t, middle, "PUT /v1/pods HTTP/1.1\r\nHost: j\r\nContent-Length: 1000\r\n\r\n["+pod("a")+",")
	send(t, full, "GET /v1/state HTTP/1.1\r\nHost: j\r\n\r\n")
	if _, err := full.Read(make([]byte, 1)); err != nil { // the answer has begun
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > patient.close/2 { // shorter than each limit of a request
		t.Errorf("Close took %v, want at most %v", d, patient.close/2)
	}
	for _, c := range []net.Conn{silent, middle, full} {
		_, _ = io.Copy(io.Discard, c) // ends
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: error %v, want nil", err)
	}
}

func TestModes(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	if os.Geteuid() == 0 {
		path, _ := start(t, Options{Group: group}, patient)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || info.Mode().Perm() != 0o660 || st.Gid != 54321 {
			t.Errorf("socket with a group: mode %v, group %d, error %v; want 0660 and 54321", info.Mode(), st.Gid, err)
		}
	}
	unix.Umask(0)
	path, _ := start(t, Options{}, patient)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("socket without a group: mode %v, error %v; want 0600", info.Mode(), err)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || dir.Mode().Perm() != 0o755 {
		t.Errorf("directory of the socket: mode %v, error %v; want 0755", dir.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 2 { // the socket and its lock
		t.Errorf("files next to the socket = %v, error %v; want socket and lock", left, err)
	}
}

func TestPaths(t *testing.T) {
	dir := short(t)
	wide := filepath.Join(dir, "wide")
	if err := os.Mkdir(wide, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(wide, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, group, want string }{
		{"s.sock", "", `socket "s.sock": want an absolute path`},
		{"/" + strings.Repeat("x", 107), "", `socket /` + strings.Repeat("x", 107) + `: path too long: the kernel allows 107 bytes`},
		{file, "", `socket DIR/file: the path exists and is not a socket: remove it, or choose another path`},
		{dir, "", `socket DIR: the path exists and is not a socket: remove it, or choose another path`},
		{file + "/s", "", `socket DIR/file/s: mkdir DIR/file: not a directory`},
		{wide + "/s", "", `socket DIR/wide/s: every user may write to DIR/wide (mode 0777): choose another directory`},
		{dir + "/s", "no-such-group", `socketGroup "no-such-group": group not found (in a container: in its /etc/group): use an existing group, or its number`},
		{dir + "/s", "-1", `socketGroup "-1": group not found (in a container: in its /etc/group): use an existing group, or its number`},
		{dir + "/s", fmt.Sprint(overflowGID()), fmt.Sprintf(`socketGroup "%d": the kernel shows every process of another user namespace as group %d: choose another group`, overflowGID(), overflowGID())},
	} {
		s, err := Listen(Options{Path: c.path, Group: c.group, Pods: podstore.New()})
		if err == nil {
			_ = s.Close()
			t.Errorf("path %s with group %q accepted, want an error", c.path, c.group)
		} else if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != c.want {
			t.Errorf("error for path %s, group %q:\n got %s\nwant %s", c.path, c.group, got, c.want)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("existing file after Listen = %q, error %v; want it unchanged", text, err)
	}
	if gid, err := groupID("root"); gid != 0 || err != nil {
		t.Errorf("number of group root = %d, error %v; want 0", gid, err)
	}
}

// A second agent gets an error and changes nothing. The socket of an agent that died is replaced.
func TestSecondAgentAndStaleSocket(t *testing.T) {
	path := filepath.Join(short(t), "s")
	first, err := Listen(Options{Path: path, Pods: podstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	another := fmt.Sprintf("socket %s: another agent (pid %d) listens on it: stop that agent, or configure another socket", path, os.Getpid())
	if _, err := Listen(Options{Path: path, Pods: podstore.New()}); err == nil || err.Error() != another {
		t.Errorf("Listen of a second agent: error %v, want %s", err, another)
	}
	os.Remove(path + ".lock") // the first agent still listens
	if _, err := Listen(Options{Path: path, Pods: podstore.New()}); err == nil || err.Error() != another {
		t.Errorf("Listen of a second agent without the lock file: error %v, want %s", err, another)
	}
	if status, _, err := rawAsk(path, "PUT", "/v1/pods", "[]"); status != 200 {
		t.Errorf("answer of the first agent = %d %v, want 200", status, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	// The socket of an agent that was killed: no process listens.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	next, err := Listen(Options{Path: path, Pods: podstore.New()})
	if err != nil {
		t.Fatalf("Listen on a stale socket: %v", err)
	}
	if status, _, err := rawAsk(path, "PUT", "/v1/pods", "[]"); status != 200 {
		t.Errorf("answer of the next agent = %d %v, want 200", status, err)
	}
	// A socket of another process is not removed.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("socket of another process removed by Close: %v", err)
	}
}

// Of many agents that start at the same time on a stale socket, one gets it.
func TestAgentsThatRace(t *testing.T) {
	path := filepath.Join(short(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	var all sync.WaitGroup
	won := make(chan *Server, 10)
	for range cap(won) {
		all.Go(func() {
			if s, err := Listen(Options{Path: path, Pods: podstore.New()}); err == nil {
				won <- s
			}
		})
	}
	all.Wait()
	if len(won) != 1 {
		t.Errorf("%d agents have the socket, want one", len(won))
	}
	for len(won) > 0 {
		if err := (<-won).Close(); err != nil {
			t.Error(err)
		}
	}
}

// Answers contain no control characters that a terminal interprets, and decode to the same value.
func TestAnswersHoldNoControls(t *testing.T) {
	const text = "a\x1b[2J\u009b2J\x7f\u202e"
	path, _ := start(t, Options{State: func() any { return text }}, patient)
	got := ask(t, client(t, path), "GET", "/v1/state", "")
	var back string
	if err := json.Unmarshal([]byte(got.text), &back); err != nil || back != text || strings.ContainsAny(got.text, "\x1b\u009b\x7f\u202e") {
		t.Errorf("answer %q decodes to %q, %v; want the original text without controls", got.text, back, err)
	}
	if got = ask(t, client(t, path), "GET", "/v1/none%1b%c2%9b", ""); got.status != 404 || strings.ContainsAny(got.text, "\x1b\u009b") {
		t.Errorf("answer with an odd path = %d %q, want 404 without controls", got.status, got.text)
	}
}
