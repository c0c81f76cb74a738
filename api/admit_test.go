package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func TestClientRequestsAdmission(t *testing.T) {
	var requests []string
	answers := []string{
		`{"uid": "a", "admit": false, "reason": "Evicted", "message": "The node had condition: [MemoryPressure]. ", "later": [1]}`,
		`{"uid": "a", "admit": true, "unknownFields": ["spec.shiny"]}`,
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body))
		_, _ = io.WriteString(w, answers[len(requests)-1])
	})
	pod := map[string]any{"metadata": map[string]string{"uid": "a"}}
	got, err := c.Admit(t.Context(), pod)
	want := AdmitAnswer{UID: "a", Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Admit() = %+v, %v, want %+v", got, err, want)
	}
	got, err = c.Preempt(t.Context(), json.RawMessage(`{"metadata":{"uid":"a"}}`))
	want = AdmitAnswer{UID: "a", Admit: true, Unknown: []string{"spec.shiny"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Preempt() = %+v, %v, want %+v", got, err, want)
	}
	const body = ` application/json {"metadata":{"uid":"a"}}`
	if want := []string{"POST /v1/admit" + body, "POST /v1/admit?preempt=true" + body}; !reflect.DeepEqual(requests, want) {
		t.Errorf("requests =\n%q\nwant\n%q", requests, want)
	}
}

// An answer without a decision is an error, not a rejection.
func TestMissingDecisionIsAnError(t *testing.T) {
	for answer, wantErr := range map[string]error{
		`{}`: ErrMalformed, `null`: ErrMalformed, `{"admit":null}`: ErrMalformed, `{"admit":"yes"}`: ErrMalformed,
		`{"admit":true,"reason":1}`: ErrMalformed, `[]`: ErrMalformed, ``: ErrMalformed,
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		got, err := c.Admit(t.Context(), map[string]any{})
		if !errors.Is(err, wantErr) || !reflect.DeepEqual(got, AdmitAnswer{}) || !strings.HasPrefix(err.Error(), "agent at /") {
			t.Errorf("Admit() with answer %q = %+v, %v, want error %v", answer, got, err, wantErr)
		}
	}
	c := New(Options{Socket: "/nonexistent"})
	for want, pod := range map[string]any{
		"pod is 1048580 bytes, limit is 1048576": strings.Repeat("x", MaxPodBytes+2),
		"encode pod as JSON: ":                   func() {},
	} {
		if _, err := c.Admit(t.Context(), pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Admit() error = %v, want it to contain %q", err, want)
		}
	}
}
