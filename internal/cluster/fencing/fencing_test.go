package fencing

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var node = &v1.Node{
	ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1.NodeSpec{ProviderID: "cloud:///a b"},
	Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "h"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}}},
}

// A program confirms a node dead only by the word dead and exit code 0.
func TestProgramCheck(t *testing.T) {
	for script, want := range map[string]struct {
		dead bool
		err  string
	}{
		`echo "dead since noon"`:                {true, ""},
		`echo alive`:                            {false, ""},
		`true`:                                  {false, `begins with ""`},
		`echo deadly`:                           {false, `begins with "deadly"`},
		`echo dead; echo no rights >&2; exit 3`: {false, "exit status 3: \"no rights\\n\""},
		`sleep 60`:                              {false, "signal: killed"},
		`yes dead`:                              {false, "signal: killed"},
		`test "$1 $2" = "n1 10.0.0.1" && echo dead`: {true, ""},
	} {
		path := filepath.Join(t.TempDir(), "check")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		limit := time.Minute
		if strings.Contains(want.err, "killed") {
			limit = 50 * time.Millisecond
		}
		dead, err := New([]string{path, "{node}", "{address}"}, "", limit)(t.Context(), node)
		if dead != want.dead || (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("check with %q = %v, %v, want %v and error %q", script, dead, err, want.dead, want.err)
		}
	}
}

// A kubelet chooses its address and may be hostile: the address must not become an option.
func TestNodeValueIsNoOption(t *testing.T) {
	path := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ntest \"$1\" = --host=--force && echo dead\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hostile := node.DeepCopy()
	hostile.Status.Addresses[1].Address = "--force"
	dead, err := New([]string{path, "{address}"}, "", time.Minute)(t.Context(), hostile)
	if dead || err == nil || !strings.Contains(err.Error(), `"{address}" becomes "--force"`) {
		t.Errorf("check with address --force = %v, %v, want an error", dead, err)
	}
	if dead, err := New([]string{path, "--host={address}"}, "", time.Minute)(t.Context(), hostile); !dead || err != nil {
		t.Errorf("check with --host={address} = %v, %v, want dead", dead, err)
	}
}

// A server confirms a node dead only by the word dead and status 200.
func TestServerCheck(t *testing.T) {
	answer, code := "", 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("id") != "cloud:///a b" || r.URL.Path != "/n1" {
			t.Errorf("request for %s, want /n1 with the provider ID", r.URL)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(answer))
	}))
	defer s.Close()
	check := New(nil, s.URL+"/{node}?id={providerID}", time.Minute)
	for _, c := range []struct {
		code int
		text string
		dead bool
		ok   bool
	}{{200, "dead", true, true}, {200, "alive\n", false, true}, {500, "dead", false, false}, {302, "dead", false, false}, {200, "<html>", false, false}} {
		code, answer = c.code, c.text
		if dead, err := check(t.Context(), node); dead != c.dead || (err == nil) != c.ok {
			t.Errorf("check with response %+v = %v, error %v, want dead %v", c, dead, err, c.dead)
		}
	}
	if New(nil, "", 0) != nil {
		t.Error("New without command and URL returns a check, want nil")
	}
}
