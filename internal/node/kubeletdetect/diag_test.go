package kubeletdetect

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// asked returns the kernel's answer about this program's network.
func asked(t *testing.T, p *proc) sockets {
	t.Helper()
	all := sockets{}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		for _, port := range ports {
			if err := p.dump(netns.None(), family, port, all); err == unix.ENOENT {
				t.Skip("a kernel without INET_DIAG")
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

func openThis(t *testing.T) *proc {
	t.Helper()
	p, err := openProc("/proc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// Socket diagnosis and the tables of /proc report the same listeners.
func TestDiagnosisMatchesTables(t *testing.T) {
	none(t)
	listenTimes(t, 500, 10255)
	if l, err := net.Listen("tcp6", "[::1]:10248"); err == nil {
		defer l.Close()
	}
	p := openThis(t)
	got, want := asked(t, p), sockets{}
	for _, file := range []string{"self/net/tcp", "self/net/tcp6"} {
		if err := p.table(file, want); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) < 500 || len(got) != len(want) {
		t.Errorf("listeners = %d by diagnosis, %d in the tables, want 500", len(got), len(want))
	}
	for link, port := range got {
		if want[link] != port {
			t.Errorf("port of %s = %d by diagnosis, %d in the table", link, port, want[link])
		}
	}
	if err := p.diagnose(sockets{}); err != nil {
		t.Log("cannot enter the network of process 1: ", err)
	}
}

// Listeners beyond the limit count neither as a kubelet nor as a possible one, and the next port is
// still searched.
func TestTooManyListeners(t *testing.T) {
	none(t)
	listenTimes(t, maxSockets+100, 10250) // the first port of the search
	p := openThis(t)
	began := time.Now()
	if all := asked(t, p); len(all) != maxSockets {
		t.Errorf("number of listeners = %d after %v, want the limit", len(all), time.Since(began))
	}
}

// Complete messages of an answer are used; a malformed one, or the kernel's error, is an error.
func TestParseDiag(t *testing.T) {
	message := func(kind uint16, body []byte) []byte {
		r := nl.NewNetlinkRequest(int(kind), 0)
		r.AddRawData(body)
		return r.Serialize()
	}
	one := make([]byte, diagMessageSize+3) // an attribute that is no whole word
	one[diagPort], one[diagPort+1], one[diagInode] = 10250>>8, 10250&0xff, 7
	other := append([]byte(nil), one...)
	other[diagUID] = 1
	failed := []byte{0xfe, 0xff, 0xff, 0xff} // -ENOENT
	for name, c := range map[string]struct {
		text []byte
		took int
		done bool
		err  error
	}{
		"nothing":       {},
		"sockets":       {append(append(message(sockDiagByFamily, one), 0), message(sockDiagByFamily, other)...), 2, false, nil},
		"the end":       {message(unix.NLMSG_DONE, make([]byte, 4)), 0, true, nil},
		"no such thing": {message(unix.NLMSG_DONE, failed), 0, false, unix.ENOENT},
		"refused":       {message(unix.NLMSG_ERROR, failed), 0, false, unix.ENOENT},
		"short":         {message(sockDiagByFamily, one[:diagMessageSize-1]), 0, false, errDiag},
		"another kind":  {message(77, one), 0, false, errDiag},
		"an empty end":  {message(unix.NLMSG_DONE, nil), 0, false, errDiag},
		"no length":     {make([]byte, 40), 0, false, errDiag},
		"cut":           {message(sockDiagByFamily, one)[:60], 0, false, errDiag},
	} {
		var got []socket
		took, done, err := parseDiag(c.text, func(s socket) { got = append(got, s) })
		if took != c.took || done != c.done || err != c.err || len(got) != took {
			t.Errorf("%s: parsed %d sockets, done %v, error %v; %+v", name, took, done, err, got)
		}
		if took == 2 && (got[0] != socket{10250, true, 7} || got[1] != socket{10250, false, 7}) {
			t.Errorf("%s: sockets of the answer = %+v", name, got)
		}
	}
}
