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

func TestTheClientAsksForAdmission(t *testing.T) {
	var asked []string
	answers := []string{
		`{"uid": "a", "admit": false, "reason": "Evicted", "message": "The node had condition: [MemoryPressure]. ", "later": [1]}`,
		`{"uid": "a", "admit": true, "unknownFields": ["spec.shiny"]}`,
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body))
		_, _ = io.WriteString(w, answers[len(asked)-1])
	})
	pod := map[string]any{"metadata": map[string]string{"uid": "a"}}
	got, err := c.Admit(t.Context(), pod)
	want := AdmitAnswer{UID: "a", Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = c.Preempt(t.Context(), json.RawMessage(`{"metadata":{"uid":"a"}}`))
	if err != nil || !reflect.DeepEqual(got, AdmitAnswer{UID: "a", Admit: true, Unknown: []string{"spec.shiny"}}) {
		t.Errorf("%+v, %v", got, err)
	}
	const body = ` application/json {"metadata":{"uid":"a"}}`
	if want := []string{"POST /v1/admit" + body, "POST /v1/admit?preempt=true" + body}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked\n%q\nwant\n%q", asked, want)
	}
}

// What is no decision is no refusal.
func TestNoDecisionIsAnError(t *testing.T) {
	for answer, is := range map[string]error{
		`{}`: ErrMalformed, `null`: ErrMalformed, `{"admit":null}`: ErrMalformed, `{"admit":"yes"}`: ErrMalformed,
		`{"admit":true,"reason":1}`: ErrMalformed, `[]`: ErrMalformed, ``: ErrMalformed,
	} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		got, err := c.Admit(t.Context(), map[string]any{})
		if !errors.Is(err, is) || !reflect.DeepEqual(got, AdmitAnswer{}) || !strings.HasPrefix(err.Error(), "ask the agent at /") {
			t.Errorf("%q: %+v, %v", answer, got, err)
		}
	}
	c := New(Options{Socket: "/nonexistent"})
	for want, pod := range map[string]any{
		"the pod has 1048580 bytes, the agent takes 1048576": strings.Repeat("x", MaxPodBytes+2),
		"the pod cannot be written as JSON":                  func() {},
	} {
		if _, err := c.Admit(t.Context(), pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
