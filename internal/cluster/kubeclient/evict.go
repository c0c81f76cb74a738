package kubeclient

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Evict creates an Eviction, without retries.
func Evict(ctx context.Context, client kubernetes.Interface, e *policyv1.Eviction) error {
	return EvictionRequest(client, e).Do(ctx).Error()
}

// EvictionRequest returns the request for an Eviction, without retries. If the API server asks for a
// later retry, for example because it has not evaluated a disruption budget yet, client-go would
// block until then.
func EvictionRequest(client kubernetes.Interface, e *policyv1.Eviction) *rest.Request {
	e.TypeMeta = metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"}
	return client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(e.Namespace).Resource(
		"pods").Name(e.Name).SubResource("eviction").MaxRetries(0).Body(e)
}
