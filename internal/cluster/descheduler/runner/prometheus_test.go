package runner

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"jettison/cluster/deschedule"
)

// prometheusReader returns a reader of the query q of a Prometheus server with a Secret's token,
// or without one.
func prometheusReader(t *testing.T, url string, withToken bool) *usageReader {
	t.Helper()
	a := apiWithPods(t)
	a.raw["/api/v1/namespaces/ns/secrets/s"] = `{"kind":"Secret","apiVersion":"v1","data":{"prometheusAuthToken":"dA=="}}`
	p := &deschedule.Prometheus{URL: url}
	if withToken {
		p.AuthToken = &deschedule.AuthToken{SecretReference: &deschedule.SecretReference{Namespace: "ns", Name: "s"}}
	}
	f := newUsageReader(client(t, a), &rest.TLSClientConfig{}, &deschedule.Policy{MetricsProviders: []deschedule.MetricsProvider{
		{Source: deschedule.PrometheusMetrics, Prometheus: p}}}, "jettison-system")
	f.queries = []string{"q"}
	return f
}

const emptyVector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// Prometheus gets a token only if the policy names one, and no other server gets it by a redirect.
func TestPrometheusToken(t *testing.T) {
	var mu sync.Mutex
	tokens := map[string][]string{}
	note := func(server string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens[server] = append(tokens[server], r.Header.Get("Authorization"))
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("plain", r)
		_, _ = io.WriteString(w, emptyVector)
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("secure", r)
		http.Redirect(w, r, plain.URL+r.URL.String(), http.StatusFound)
	}))
	defer secure.Close()
	for _, c := range []struct {
		withToken bool
		want      map[string][]string
		err       string // part of the error; empty: none
	}{
		{false, map[string][]string{"secure": {""}, "plain": {""}}, ""},
		{true, map[string][]string{"secure": {"Bearer t"}}, "302 Found: redirects are not followed with a token"},
	} {
		clear(tokens)
		f := prometheusReader(t, secure.URL, c.withToken)
		f.http.Transport = secure.Client().Transport
		errs := f.fill(t.Context(), time.Now(), &deschedule.Snapshot{})
		if err := errors.Join(errs...); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("with token %t: fill() = %v, want %q", c.withToken, errs, c.err)
		}
		if !maps.EqualFunc(tokens, c.want, slices.Equal) {
			t.Errorf("with token %t: headers = %q, want %q", c.withToken, tokens, c.want)
		}
	}
}

// A Prometheus server with a certificate of the cluster's authority is trusted, as by 0.36.0.
func TestPrometheusOfClusterAuthority(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, emptyVector)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, api := range map[string]*rest.TLSClientConfig{"data": {CAData: authority}, "file": {CAFile: file}, "none": {}} {
		f := prometheusReader(t, server.URL, true)
		f.http.Transport = prometheusTransport(api)
		if errs := f.fill(t.Context(), time.Now(), &deschedule.Snapshot{}); (len(errs) == 0) != (what != "none") {
			t.Errorf("fill() with the authority from %s = %v, want an error only without", what, errs)
		}
	}
}

// A node for which Prometheus has no valid value has none; the others keep theirs.
func TestInvalidPrometheusValueAffectsOneNode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"instance":"n1"},"value":[1,"NaN"]},{"metric":{"instance":"n2"},"value":[1,"0.5"]}]}}`)
	}))
	defer server.Close()
	s := &deschedule.Snapshot{}
	errs := prometheusReader(t, server.URL, false).fill(t.Context(), time.Now(), s)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `instance "n1": value NaN`) || !maps.Equal(s.Queried["q"], map[string]int64{"n2": 50}) {
		t.Errorf("fill() = %v, values = %v, want an error about n1 and 50 for n2", errs, s.Queried)
	}
}
