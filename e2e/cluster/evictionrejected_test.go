package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trial is a pod whose eviction every webhook rejects.
const trial = "trial"

// guard is a validating webhook for evictions. It rejects those of pods of an app with a code; 0:
// the API server's own code.
type guard struct {
	t       testing.TB
	refuses map[string]int32
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		g.t.Errorf("decode an admission review: %v %+v", err, review)
		return
	}
	app, _, _ := strings.Cut(review.Request.Name, "-")
	code, refused := g.refuses[app]
	refused = refused || review.Request.Name == trial
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !refused}
	if refused {
		review.Response.Result = &metav1.Status{Message: "not now", Code: code}
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		g.t.Error(err)
	}
}

// guarded registers a webhook for evictions, with a certificate of the cluster's authority, and
// returns it. While it is unreachable, evictions are rejected.
func (d *descheduling) guarded(refuses map[string]int32) *httptest.Server {
	d.t.Helper()
	p, err := d.ca.server("127.0.0.1")
	if err != nil {
		d.t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		d.t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(&guard{d.t, refuses})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	d.t.Cleanup(s.Close)
	url, never, fail, few := s.URL, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, int32(5)
	_, err = d.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(d.t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "guard"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "guard.example.org", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: d.ca.pair.cert},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
				}},
				SideEffects: &never, FailurePolicy: &fail, TimeoutSeconds: &few, AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	// The registration takes effect with a delay: evictions of a pod that is never evicted show
	// when.
	d.place(trial, "a", 0, 0)
	d.Eventually(startDeadline, "the webhook is asked", func(ctx context.Context) error {
		err := d.Client.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: trial}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		if err == nil || !strings.Contains(err.Error(), "admission webhook") {
			return fmt.Errorf("the webhook is not called: %w", err)
		}
		return nil
	})
	return s
}

// answers returns the answers to each requested eviction, by app.
func (d *descheduling) answers() map[string][]int {
	out := map[string][]int{}
	for _, r := range d.log.of(deschedulerAccount.user()) {
		if r.Verb == "create" && r.ObjectRef.Subresource == "eviction" {
			app, _, _ := strings.Cut(r.ObjectRef.Name, "-")
			out[app] = append(out[app], r.ResponseStatus.Code)
		}
	}
	return out
}

// withEvents makes a policy report failed evictions as events.
func (d *descheduling) withEvents(policy string) string {
	d.t.Helper()
	text, err := os.ReadFile(policy)
	if err == nil {
		err = os.WriteFile(policy, append(text, "evictionFailureEventNotification: true\n"...), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return policy
}

// A webhook rejects some evictions, with another code for each app. The other evictions succeed,
// and rejected ones are not retried soon.
func TestAWebhookRefuses(t *testing.T) {
	d := startDescheduling(t, "a")
	refuses := map[string]int32{"plain": 0, "denied": 403, "later": 429, "broken": 500, "gone": 404, "another": 409}
	// The youngest is evicted first: all rejected ones come before the others.
	for _, app := range append([]string{"web"}, slices.Sorted(maps.Keys(refuses))...) {
		d.Deploy(app, 4, "sleep")
		d.Available(app, 4)
	}
	d.guarded(refuses)
	d.members.join("b")
	d.kubectl("taint", "node", "a", "test/away=yes:NoSchedule")
	policy := d.withEvents(d.policy("RemovePodsViolatingNodeTaints", "{}", ""))
	r := d.replica(d.program, "one", deschedulerAccount, "deschedule", "--policy="+policy, "--descheduling-interval=2s", "--log-format=json")
	d.awaitDistribution("web", "off the tainted node", func(on map[string]int) bool { return on["b"] == 4 })
	cycles := func() int { return strings.Count(r.log(), `"descheduling cycle finished"`) }
	before := cycles()
	d.Eventually(startDeadline, "three more cycles", func(context.Context) error {
		if now := cycles(); now < before+3 {
			return fmt.Errorf("%d of %d evictions", now, before+3)
		}
		return nil
	})
	answers := d.answers()
	for app, code := range refuses {
		want := slices.Repeat([]int{max(int(code), http.StatusBadRequest)}, 4)
		if !slices.Equal(answers[app], want) {
			t.Errorf("answers to the evictions of %s = %v, want %v", app, answers[app], want)
		}
		if on, err := d.where(t.Context(), app); err != nil || on["a"] != 4 {
			t.Errorf("pods of %s by node: %v %v", app, on, err)
		}
	}
	if !slices.Equal(answers["web"], slices.Repeat([]int{http.StatusCreated}, 4)) {
		t.Errorf("answers to the evictions of web = %v", answers["web"])
	}
	events, err := d.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=EvictionFailed"})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Items) != 4*len(refuses) {
		t.Errorf("events of failed evictions = %d, want one each", len(events.Items))
	}
}

// A single run in which a webhook is broken for all pods tries each and fails. With an interval they
// are tried again after pauses. When the API server is unreachable, cycles end after three evictions. When both
// recover, everything continues, and no pod is evicted twice.
func TestTheAPIFails(t *testing.T) {
	d := startDescheduling(t, "a")
	d.Deploy("web", 6, "sleep")
	d.Available("web", 6)
	webhook := d.guarded(nil)
	d.members.join("b")
	d.kubectl("taint", "node", "a", "test/away=yes:NoSchedule")
	policy := d.policy("RemovePodsViolatingNodeTaints", "{}", "")
	webhook.Close() // makes all evictions fail
	_, log, code := command(t, d.program, "deschedule", "--policy="+policy, "--kubeconfig="+d.conf)
	if got := d.answers()["web"]; code != 1 || !slices.Equal(got, slices.Repeat([]int{http.StatusInternalServerError}, 6)) {
		t.Errorf("cycle: exit code %d, answers %v: %s", code, got, log)
	}
	r := d.replica(d.program, "one", deschedulerAccount, "deschedule", "--policy="+policy, "--descheduling-interval=2s", "--log-format=json")
	logged := func(what string, times int) {
		t.Helper()
		d.Eventually(startDeadline, "the log contains "+what, func(context.Context) error {
			if n := strings.Count(r.log(), what); n < times {
				return fmt.Errorf("%d of %d", n, times)
			}
			return nil
		})
	}
	logged(`"descheduling cycle finished"`, 3)
	if got := len(d.answers()["web"]); got != 6+6 {
		t.Errorf("requested evictions in three cycles = %d, want one of each pod", got-6)
	}
	d.kubectl("delete", "validatingwebhookconfiguration", "guard")
	d.Kill(APIServer)
	logged("3 consecutive evictions failed", 1) // the plan uses the last known state, after the pauses
	d.Again(APIServer)
	d.awaitDistribution("web", "off the tainted node", func(on map[string]int) bool { return on["b"] == 6 })
	done := 0
	for _, code := range d.answers()["web"] {
		if code == http.StatusCreated {
			done++
		}
	}
	if done != 6 {
		t.Errorf("evictions of 6 pods = %d, want 6", done)
	}
}
