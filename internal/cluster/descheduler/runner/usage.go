package runner

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	agentapi "jettison/api"
	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/planner"
)

// Size limits of responses, in bytes.
const (
	maxMetricsBytes    = 256 << 20 // a PodMetrics is half a KiB
	maxPrometheusBytes = 16 << 20
)

// usageReader reads the measured usage that the policy needs, in each cycle.
type usageReader struct {
	client           kubernetes.Interface
	namespace        string // namespace of the agents' Leases
	metricsAPI       bool
	agents           bool
	queries          []string
	prometheusConfig *deschedule.Prometheus // nil: not configured
	http             *http.Client
}

// newUsageReader returns a reader of the usage that a policy needs. api is the API server's.
func newUsageReader(client kubernetes.Interface, api *rest.TLSClientConfig, p *deschedule.Policy,
	namespace string) *usageReader {
	f := &usageReader{client: client, namespace: namespace,
		http: &http.Client{Timeout: requestTimeout, Transport: prometheusTransport(api)}}
	for i := range p.MetricsProviders {
		if m := &p.MetricsProviders[i]; m.Source == deschedule.PrometheusMetrics {
			f.prometheusConfig = m.Prometheus
		}
	}
	used := p.RequiredMetrics()
	f.metricsAPI, f.agents, f.queries = used.MetricsAPI, used.Agents, used.Queries
	return f
}

// prometheusTransport returns a transport that trusts the certificate authorities of the system and
// that of the API server, as 0.36.0 does (pkg/descheduler/client/client.go). The image has no
// certificates.
func prometheusTransport(api *rest.TLSClientConfig) *http.Transport {
	out := http.DefaultTransport.(*http.Transport).Clone()
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool()
	}
	authority := api.CAData
	if len(authority) == 0 && api.CAFile != "" {
		authority, _ = os.ReadFile(api.CAFile) // the client of the API server reports its errors
	}
	trusted.AppendCertsFromPEM(authority)
	out.TLSClientConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	return out
}

// fill adds measured usage to a snapshot. Unavailable usage is absent, and the errors explain
// why: strategies that need it stop.
func (f *usageReader) fill(ctx context.Context, now time.Time, s *deschedule.Snapshot) (errs []error) {
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if f.metricsAPI {
		s.NodeUsage, s.PodUsage = map[string]v1.ResourceList{}, map[string]v1.ResourceList{}
	}
	if f.metricsAPI {
		note(f.readMetricsAPI(ctx, s))
	}
	for _, query := range f.queries {
		note(f.queryPrometheus(ctx, now, query, s))
	}
	if f.agents {
		note(f.readAgentLoad(ctx, s))
	}
	return errs
}

// metricsList is a NodeMetricsList or PodMetricsList of metrics.k8s.io/v1beta1.
type metricsList struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Usage      v1.ResourceList   `json:"usage"`
		Containers []struct {
			Usage v1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// readMetricsAPI reads usage of nodes and pods from the metrics API.
func (f *usageReader) readMetricsAPI(ctx context.Context, s *deschedule.Snapshot) error {
	for _, kind := range []string{"nodes", "pods"} {
		var all metricsList
		path := "/apis/metrics.k8s.io/v1beta1/" + kind
		body, err := f.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept",
			"application/json").Stream(ctx)
		if err == nil {
			err = json.NewDecoder(io.LimitReader(body, maxMetricsBytes)).Decode(&all)
			_ = body.Close()
		}
		if err != nil {
			return fmt.Errorf("get %s from the metrics API: %w", kind, err)
		}
		for i := range all.Items {
			item := &all.Items[i]
			if kind == "nodes" {
				s.NodeUsage[item.Metadata.Name] = item.Usage
				continue
			}
			sum := v1.ResourceList{}
			for _, c := range item.Containers {
				for name, q := range c.Usage {
					total := sum[name]
					total.Add(q)
					sum[name] = total
				}
			}
			s.PodUsage[item.Metadata.Namespace+"/"+item.Metadata.Name] = sum
		}
	}
	return nil
}

// readAgentLoad reads the load that agents report in Leases.
func (f *usageReader) readAgentLoad(ctx context.Context, s *deschedule.Snapshot) error {
	leases, err := f.client.CoordinationV1().Leases(f.namespace).List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("list Leases with node load in namespace %s: %w", f.namespace, err)
	}
	s.Agents = map[string]deschedule.AgentLoad{}
	var invalid error
	for i := range leases.Items {
		l := &leases.Items[i]
		text, ok := l.Annotations[agentapi.LoadAnnotation]
		if !ok {
			continue
		}
		load, err := planner.ParseAgentLoad(text)
		if err != nil {
			invalid = fmt.Errorf("load of node %s: %w", l.Name, err)
			continue
		}
		s.Agents[l.Name] = load
	}
	return invalid
}

// queryResult is the response of Prometheus to an instant query
// (prometheus.io/docs/prometheus/latest/querying/api).
type queryResult struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		Type   string `json:"resultType"`
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

// queryPrometheus runs one query. Its result has a value from 0 to 1 for each node, by the label
// instance. A node with another value has none, and the error names it.
func (f *usageReader) queryPrometheus(ctx context.Context, now time.Time, query string,
	s *deschedule.Snapshot) error {
	if f.prometheusConfig == nil {
		return fmt.Errorf("query Prometheus: not configured in metricsProviders of the policy")
	}
	wrap := func(err error) error { return fmt.Errorf("query Prometheus %s: %w", f.prometheusConfig.URL, err) }
	at := strings.TrimSuffix(f.prometheusConfig.URL, "/") + "/api/v1/query?" +
		url.Values{"query": {query}, "time": {strconv.FormatInt(now.Unix(), 10)}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return wrap(err)
	}
	token, err := f.prometheusToken(ctx)
	if err != nil {
		return wrap(err)
	}
	client := *f.http
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
		client.CheckRedirect = func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = response.Body.Close() }()
	if token != "" && response.Header.Get("Location") != "" {
		return wrap(fmt.Errorf("%s: redirects are not followed with a token: want the final url "+
			"in the policy", response.Status))
	}
	var a queryResult
	if err := json.NewDecoder(io.LimitReader(response.Body, maxPrometheusBytes)).Decode(&a); err != nil {
		return wrap(fmt.Errorf("%s: %w", response.Status, err))
	}
	if a.Status != "success" || a.Data.Type != "vector" {
		return wrap(fmt.Errorf("%s: status %q, type %q: %s: want a vector", response.Status, a.Status,
			a.Data.Type, a.Error))
	}
	percents := make(map[string]int64, len(a.Data.Result))
	if s.Queried == nil {
		s.Queried = map[string]map[string]int64{}
	}
	s.Queried[query] = percents
	var invalid error
	for _, r := range a.Data.Result {
		node, text := r.Metric["instance"], fmt.Sprint(r.Value[1])
		share, err := strconv.ParseFloat(text, 64)
		if node == "" || err != nil || !(share >= 0 && share <= 1) {
			invalid = wrap(fmt.Errorf("instance %q: value %s: want a number from 0 to 1", node, text))
			continue
		}
		percents[node] = int64(share * 100)
	}
	return invalid
}

// prometheusToken returns the bearer token for Prometheus from the Secret of the policy; empty: the
// policy names none.
func (f *usageReader) prometheusToken(ctx context.Context) (string, error) {
	if f.prometheusConfig.AuthToken == nil {
		return "", nil
	}
	reference := f.prometheusConfig.AuthToken.SecretReference
	secret, err := f.client.CoreV1().Secrets(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token, ok := secret.Data["prometheusAuthToken"] // pkg/descheduler/runner.go, 0.36.0
	if !ok {
		return "", fmt.Errorf("secret %s/%s has no key prometheusAuthToken", reference.Namespace, reference.Name)
	}
	return strings.TrimSpace(string(token)), nil
}
