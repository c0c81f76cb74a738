package sources

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/critest"
)

// FirstAnswer tells what is wrong with a socket in words, and outlasts a runtime that answers late.
func TestFirstAnswer(t *testing.T) {
	r := critest.Start(t)
	for name, c := range map[string]struct {
		fail string
		want string
	}{
		"all is well":        {"", ""},
		"the list fails":     {"ListPodSandbox", "hangs: check the runtime"},
		"the version fails":  {"Version", "hangs: check the runtime"},
		"the list fails too": {"ListContainers", "hangs: check the runtime"},
	} {
		client, err := cri.Dial(r.Endpoint(), "")
		if err != nil {
			t.Fatal(err)
		}
		r.Change(func() { clear(r.Fail); r.Fail[c.fail] = errors.New("broken") })
		_, _, err = FirstAnswer(t.Context(), client, cri.NewLister(client), 200*time.Millisecond)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
		client.Close()
	}
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for path, want := range map[string]string{"/nowhere.sock": "no such socket", dead: "nothing listens"} {
		if got := Diagnose("unix://"+path, errors.New("x")); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
