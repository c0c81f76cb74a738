package socket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/memtest"
	"jettison/internal/base/podjson"
	"jettison/internal/base/race"
	"jettison/internal/node/selfprotect"
)

// childVariable is set in the process that TestHostileClientsFitTheMemory measures. It has the path of the socket.
const childVariable = "JETTISON_SERVES"

// memoryMore bounds the growth of memory, as in internal/agent/podlister: the container's limit is 64 MiB, and at rest the agent has 28.
const memoryMore = 36 << 20

// serve is the process that is measured. It ends with its standard input.
func serve(t *testing.T, path string) {
	selfprotect.Self(false) // only the bounds of the heap matter here; other settings may be refused
	pods := podstore.New()
	state := strings.Repeat("s", 300<<10) // a large state: a hundred evicted pods with their messages
	gid := fmt.Sprint(memberGID)
	s, err := listen(Options{Path: path, Group: gid, Pods: pods, State: func() any { return state }, Admission: refuser{}}, patient)
	if err != nil {
		t.Fatal(err)
	}
	before := memtest.Bytes(t, "VmRSS:")
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Printf("more %d known %d\n", memtest.Bytes(t, "VmHWM:")-before, len(pods.Snapshot().Pods))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// memberGID is a group without members.
const memberGID = 54321

// huge is a pod of nearly a MiB, in two parts: all but the end, and the end.
func huge(uid string) (head, tail string) {
	return `{"metadata":{"uid":"` + uid + `","namespace":"a","name":"a","labels":{"a":"` + strings.Repeat("v", 1000<<10), `"}}}`
}

// Connections of root and two members use all places, each slow or huge in its way, on a full and
// an empty store. The agent's memory stays bounded, known pods stay, and an ordinary pod can be put
// meanwhile.
func TestHostileClientsFitTheMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector multiplies memory")
	}
	if path := os.Getenv(childVariable); path != "" {
		serve(t, path)
		return
	}
	for _, full := range []bool{true, false} {
		path := filepath.Join(short(t), "s.sock")
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), childVariable+"="+path)
		in, err1 := child.StdinPipe()
		out, err2 := child.StdoutPipe()
		if err := errors.Join(err1, err2, child.Start()); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "ready" {
		}
		known := 1 // the ordinary pod
		if full {
			known += fill(t, path)
		}
		all := dialAll(t, path)
		accepted := attack(t, path, all)
		_ = in.Close()
		var more, after int
		for lines.Scan() {
			_, _ = fmt.Sscanf(lines.Text(), "more %d known %d", &more, &after)
		}
		err := child.Wait()
		t.Logf("full %v: %d clients, %d of their huge pods accepted: %.1f MiB more", full, len(all), accepted, float64(more)/(1<<20))
		if err != nil || more == 0 || more > memoryMore || after != known+accepted || !full && accepted == 0 {
			t.Errorf("memory grew by %d bytes, want at most %d MiB; %d pods known, want %d; child: %v", more, memoryMore>>20, after, known+accepted, err)
		}
	}
}

// fill puts pods until the store is full, and deletes the last three.
func fill(t *testing.T, path string) (known int) {
	t.Helper()
	c := client(t, path)
	labels := map[string]string{}
	for i := range 100 {
		labels[fmt.Sprint("k", i)] = strings.Repeat("v", 60)
	}
	for ; ; known++ {
		text, _ := json.Marshal([]any{map[string]any{"metadata": map[string]any{"uid": fmt.Sprint("u", known), "namespace": "a", "name": "a", "labels": labels}}})
		if got := ask(t, c, "PUT", "/v1/pods", string(text)); got.status == 507 {
			break
		} else if got.status != 200 {
			t.Fatalf("put while filling the store = %d %s, want 200 or 507", got.status, got.text)
		}
	}
	for range 3 {
		known--
		ask(t, c, "DELETE", fmt.Sprint("/v1/pods/u", known), "")
	}
	c.CloseIdleConnections()
	return known
}

// dialAll uses every place but one.
func dialAll(t *testing.T, path string) (all []net.Conn) {
	t.Helper()
	for range maxOwner - 1 {
		all = append(all, dial(t, path))
	}
	if os.Geteuid() != 0 { // cannot be another user
		return all
	}
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for uid := range maxMembers / maxMember {
		as(t, 54321+uid, memberGID, nil, func() {
			for range maxMember {
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { c.Close() })
				all = append(all, c)
			}
		})
	}
	return all
}

// refuser rejects every pod.
type refuser struct{}

func (refuser) Ask(context.Context, *v1.Pod, podstore.Role) (admit.Result, error) {
	return refusal, nil
}

func (refuser) Preempt(context.Context, *v1.Pod) (admit.Result, error) { return refusal, nil }

// askAll requests admission from all connections at the same time, alternating between much JSON, a
// pod of the maximal memory, YAML of the maximal size, and the deepest possible nesting.
func askAll(all []net.Conn, write func(net.Conn, string)) {
	head, tail := huge("asks")
	meta := `{"metadata":{"uid":"asks","namespace":"a","name":"a"},`
	bodies := []string{
		head + tail, meta + `"spec":{"containers":[` + strings.Repeat("{},", 4000) + `{}]}}`,
		meta + `"status": [` + strings.Repeat("a,", 9900) + `"` + strings.Repeat("b ", 110<<10) + `"]}`,
		`{"a":` + strings.Repeat("[", podjson.MaxPod-5),
	}
	var clients sync.WaitGroup
	for i, c := range all {
		clients.Go(func() {
			body, form := bodies[i%len(bodies)], []string{"json", "json", "yaml", "json"}[i%len(bodies)]
			write(c, fmt.Sprintf("POST /v1/admit HTTP/1.1\r\nHost: j\r\nContent-Type: application/%s\r\nContent-Length: %d\r\n\r\n%s",
				form, len(body), body))
			_, _ = http.ReadResponse(bufio.NewReader(c), nil)
		})
	}
	clients.Wait()
}

// maxAsks bounds how often crowd repeats a request.
const maxAsks = 1000

// crowd opens a thousand hostile connections of root, and sends a proper request after every tenth.
// The server closes a hostile connection for it once it knows that one to be idle or stalled. Until
// then it may reject the request, which is repeated.
func crowd(t *testing.T, path string) {
	t.Helper()
	ways := []string{
		"", slowHeader, slowBody, "GET /healthz HTTP/1.1\r\nHost: j\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		strings.Repeat("GET /"+strings.Repeat("p", 1000)+" HTTP/1.1\r\nHost: j\r\n\r\n", 20),
		strings.Repeat("GET /v1/state HTTP/1.1\r\nHost: j\r\n\r\n", 50),
	}
	failed := 0
	for i := range 1000 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) // it may be closed, or stall, before all is written
		_, _ = io.WriteString(c, ways[i%len(ways)])
		if i%10 < 9 {
			continue
		}
		for try := 1; ; try++ {
			status, _, err := rawAsk(path, "GET", "/v1/state", "")
			if err == nil && status == 200 {
				break
			}
			if try == maxAsks {
				failed++
				t.Logf("request after %d hostile connections: status %d, error %v, want 200 within %d tries", i+1, status, err, maxAsks)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if failed > 0 {
		t.Errorf("%d of 100 proper requests not served", failed)
	}
}

// attack makes all clients do the worst at the same time, three times: bodies of a huge pod that
// end only when all have begun, admission requests, then answers that they do not read.
func attack(t *testing.T, path string, all []net.Conn) (accepted int) {
	t.Helper()
	var clients sync.WaitGroup
	// No client has a time limit, however slow the machine is: the server reads the request, or
	// answers and closes the connection. A client that gave up would not count a pod that the
	// server accepted afterwards.
	write := func(c net.Conn, text string) {
		_, _ = io.WriteString(c, text) // the server may have closed it
	}
	for i, c := range all {
		clients.Go(func() {
			head, tail := huge(fmt.Sprint("huge", i))
			write(c, fmt.Sprintf("PUT /v1/pods HTTP/1.1\r\nHost: j\r\nContent-Length: %d\r\n\r\n[%s", len(head)+len(tail)+2, head))
		})
	}
	clients.Wait()
	if got := ask(t, client(t, path), "PUT", "/v1/pods", "["+pod("ordinary")+"]"); got.status != 200 {
		t.Errorf("put of an ordinary pod meanwhile = %d %s, want 200", got.status, got.text)
	}
	var mu sync.Mutex
	for _, c := range all {
		clients.Go(func() {
			_, tail := huge("")
			write(c, tail+"]")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && res.StatusCode == 200 {
				accepted++
			}
		})
	}
	clients.Wait()
	for _, c := range all {
		c.Close()
	}
	for range 3 {
		all = dialAll(t, path)
		askAll(all, write)
		for _, c := range all {
			c.Close()
		}
	}
	crowd(t, path)
	for _, c := range dialAll(t, path) {
		clients.Go(func() { write(c, strings.Repeat("GET /v1/state HTTP/1.1\r\nHost: j\r\n\r\n", 50)) })
	}
	clients.Wait()
	return accepted
}
