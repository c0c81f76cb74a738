package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"jettison/internal/base/memtest"
	"jettison/internal/base/race"
	"jettison/internal/node/selfprotect"
)

// childVariable is set in the process that TestAThousandHostileConnections measures.
const childVariable = "JETTISON_LISTENS"

// memoryMore bounds the growth of the listener's resident memory: the container's limit is 64 MiB,
// at rest the agent has 28, and clients of the unix socket may make it hold 12 at the same time.
const memoryMore = 24 << 20

// largest answers with a body as large as the metrics of a node may be.
type largest struct{}

func (largest) Remote(path string) (http.HandlerFunc, string) {
	if path != "/metrics" {
		return reads{}.Remote(path)
	}
	text := []byte(strings.Repeat("m", 300<<10))
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) }, ""
}

// serveForTest is the process that is measured. For each line of its standard input it prints its
// resource use. It ends with its input.
func serveForTest(t *testing.T) {
	selfprotect.Self(false) // only the bounds of the heap matter here; other settings may be refused
	s, err := Listen(Options{Listen: "127.0.0.1:0", Reads: largest{}})
	if err != nil {
		t.Fatal(err)
	}
	atRest, goroutines := memtest.Bytes(t, "VmRSS:"), runtime.NumGoroutine()
	fmt.Println("at", s.Address())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("has", memtest.Bytes(t, "VmHWM:")-atRest, runtime.NumGoroutine()-goroutines, len(open))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// hostile lists the requests of hostile clients.
var hostile = map[string]string{
	"idle":                   "",
	"half a header":          "GET /metrics HTTP/1.1\r\nHost: loc",
	"a body that stalls":     "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx",
	"a body in pieces":       "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
	"a huge header":          "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
	"unknown paths":          strings.Repeat("GET /"+strings.Repeat("p", 1000)+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 20),
	"pipelined, never read":  strings.Repeat("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 100),
	"no HTTP":                "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"HTTP/2 without upgrade": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

// A thousand hostile connections of all kinds use a bounded amount of memory. A proper client is
// served meanwhile. When they close, all resources are released.
func TestAThousandHostileConnections(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		serveForTest(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childVariable+"=1")
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	address := ""
	for address == "" && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "at %s", &address)
	}
	usage := func() (more, goroutines, files int) {
		_, _ = io.WriteString(in, "\n")
		for files == 0 && lines.Scan() {
			_, _ = fmt.Sscanf(lines.Text(), "has %d %d %d", &more, &goroutines, &files)
		}
		return more, goroutines, files
	}
	proper := func() error {
		c, err := net.DialTimeout("tcp", address, time.Minute)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		if err == nil && (res.StatusCode != 200 || len(text) != 300<<10) {
			err = fmt.Errorf("%s, %d bytes", res.Status, len(text))
		}
		return err
	}
	_, _, rest := usage()
	all := attack(t, address, 1000, proper)
	more, goroutines, files := usage()
	t.Logf("%d connections: %.1f MiB more, %d goroutines, %d files", len(all), float64(more)/(1<<20), goroutines, files-rest)
	if !race.Enabled && (more <= 0 || more > memoryMore) || goroutines > 256 || files > rest+256 {
		t.Errorf("resource growth above the bounds: want at most %d MiB, %d connections, and closing ones", memoryMore>>20, maxConnections)
	}
	for _, c := range all {
		_ = c.Close()
	}
	for deadline := time.Now().Add(time.Minute); goroutines > 0 || files > rest; _, goroutines, files = usage() {
		if time.Now().After(deadline) {
			t.Fatalf("not released within a minute: %d goroutines, %d files", goroutines, files-rest)
		}
	}
	_ = in.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// maxAsks bounds how often attack repeats a request.
const maxAsks = 1000

// attack opens n hostile connections of alternating kinds, and sends a proper request after every
// tenth. The server closes a hostile connection for it once it knows that one to be idle or
// stalled. Until then it may reject the request, which is repeated.
func attack(t *testing.T, address string, n int, proper func() error) (all []net.Conn) {
	t.Helper()
	var ways []string
	for _, text := range hostile {
		ways = append(ways, text)
	}
	failed := 0
	for i := range n {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)) // it may be closed, or stall, before all is written
		_, _ = io.WriteString(c, ways[i%len(ways)])
		if i%10 == 9 {
			err := proper()
			for try := 1; err != nil && try < maxAsks; try++ {
				time.Sleep(20 * time.Millisecond)
				err = proper()
			}
			if err != nil {
				if failed++; failed == 1 {
					t.Errorf("proper request after %d hostile connections: %v", i+1, err)
				}
			}
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d proper requests not served", failed, n/10)
	}
	return all
}
