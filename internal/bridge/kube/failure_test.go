package kube

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Classify returns what a caller should do after an error.
func TestClassify(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	going := apierrors.NewForbidden(pods, "a", errors.New("its namespace is being terminated"))
	going.ErrStatus.Details.Causes = append(going.ErrStatus.Details.Causes, metav1.StatusCause{Type: v1.NamespaceTerminatingCause})
	status := func(code int32) error { return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code}} }
	for _, c := range []struct {
		err  error
		want Failure
	}{
		{nil, None},
		{context.DeadlineExceeded, Unreachable},
		{errors.New("connection refused"), Unreachable},
		{apierrors.NewConflict(pods, "a", errors.New("modified")), Conflict},
		{apierrors.NewNotFound(pods, "a"), NotFound},
		{going, NotFound},
		{apierrors.NewForbidden(pods, "a", errors.New("no role")), Denied},
		{status(http.StatusUnprocessableEntity), Denied}, // as an admission policy denies
		{status(http.StatusBadRequest), Denied},
		{apierrors.NewTooManyRequests("later", 7), Unreachable},
		{status(http.StatusServiceUnavailable), Unreachable},
		{status(http.StatusUnauthorized), Unreachable},
		{status(http.StatusInternalServerError), ServerError},
		{status(http.StatusGatewayTimeout), ServerError},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("patch pods/status a: %w", err)
		}
		if got := Classify(err); got != c.want {
			t.Errorf("%v: classified as %v, want %v", c.err, got, c.want)
		}
	}
	if after, ok := RetryAfter(fmt.Errorf("wrapped: %w", apierrors.NewTooManyRequests("later", 7))); !ok || after != 7*time.Second {
		t.Errorf("Retry-After = %v, %v, want 7s, true", after, ok)
	}
	if after, ok := RetryAfter(apierrors.NewTooManyRequests("tomorrow", 86400)); !ok || after != maxRetryAfter {
		t.Errorf("Retry-After = %v, %v, want the limit", after, ok)
	}
	if _, ok := RetryAfter(errors.New("none")); ok {
		t.Error("Retry-After found in an error without one")
	}
}

// An invalid object name means that the object does not exist, without a request.
func TestInvalidName(t *testing.T) {
	c, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range [][2]string{{"", "a"}, {"a/b", "a"}, {"a", "../a"}, {"a", "b%2f"}, {"a", ".."}, {"..", "a"}} {
		if _, err := c.Pod(t.Context(), name[0], name[1]); Classify(err) != NotFound {
			t.Errorf("get of %q: %v classified as %v, want not found", name, err, Classify(err))
		}
	}
	_, patch := c.PatchPodStatus(t.Context(), "a", "b/c", []byte("{}"))
	create := c.CreateEvent(t.Context(), &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a/b", Name: "e"}})
	if Classify(patch) != NotFound || Classify(create) != NotFound {
		t.Errorf("patch: %v, create: %v, want not found", patch, create)
	}
}

// A 404 from a proxy in front of the API server does not mean that the pod does not exist.
func TestProxyBeforeTheServer(t *testing.T) {
	code := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "default backend")
	}))
	defer s.Close()
	c, err := New(&rest.Config{Host: s.URL}, "x")
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[int]Failure{
		http.StatusNotFound: ServerError, http.StatusForbidden: ServerError, http.StatusConflict: ServerError, http.StatusBadGateway: ServerError,
		http.StatusServiceUnavailable: Unreachable, http.StatusTooManyRequests: Unreachable, http.StatusUnauthorized: Unreachable,
	} {
		code = answer
		if _, err = c.PatchPodStatus(t.Context(), "default", "p", []byte("{}")); Classify(err) != want {
			t.Errorf("status %d: %v classified as %v, want %v", code, err, Classify(err), want)
		}
		if p, err := c.Pod(t.Context(), "default", "p"); err == nil {
			t.Errorf("status %d: got pod %v without an error", code, p)
		}
		if err := c.CreateEvent(t.Context(), &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}}); Classify(err) != want {
			t.Errorf("status %d for an event: %v classified as %v, want %v", code, err, Classify(err), want)
		}
	}
}

// TokenNode returns the node in a bound token's claims, and nothing for other tokens.
func TestTokenNode(t *testing.T) {
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"kubernetes.io":{"namespace":"x","node":{"name":"n1","uid":"u"}}}`))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("h."+claims+".s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, configs := range map[string][]*rest.Config{
		"n1": {{BearerToken: "h." + claims + ".s"}, {BearerToken: "other", BearerTokenFile: file}},
		"":   {{}, {BearerToken: "a.b.c"}, {BearerToken: "a." + base64.RawURLEncoding.EncodeToString([]byte("{}")) + ".c"}, {BearerToken: strings.Repeat(".", 1000)}},
	} {
		for _, c := range configs {
			if got := TokenNode(c); got != want {
				t.Errorf("token %.40q: node %q, want %q", c.BearerToken, got, want)
			}
		}
	}
}
