package cluster

import (
	"net"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node dies, and with it the backend of a webhook for deleted pods. The API server waits for the
// webhook for its timeout and then ignores it: the pods of the node are deleted.
func TestWebhookDiesWithNode(t *testing.T) {
	c := Start(t, Options{})
	program := installNodes(t, c)
	m := c.addMembers("a", "b", "c")
	p := c.place("p", "a", 3, 0)
	c.awaitPodsReady("p")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it never answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	url, never, ignore, timeout := "https://"+l.Addr().String(), admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore, int32(10)
	_, err = c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "dead"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "dead.example.org", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: c.ca.pair.cert},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}},
				SideEffects: &never, FailurePolicy: &ignore, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitLeader(c.replica(program, "one", nodeAccount, nodesArgs(t)...))
	m.silence("a")
	tainted := executes(c.awaitTaints("a", unreachable...))
	c.awaitPodGone(p)
	t.Logf("pod is deleted %v after the taint", time.Since(tainted).Round(time.Second))
}
