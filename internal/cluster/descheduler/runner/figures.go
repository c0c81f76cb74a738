package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	agentapi "jettison/api"
	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/planner"
)

// Bounds of answers from outside, in bytes.
const (
	mostMetrics    = 256 << 20 // a PodMetrics is half a KiB
	mostPrometheus = 16 << 20
)

// ownToken is the token of this pod, which a Prometheus gets over https that no secret is named
// for.
const ownToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// figures are of real use: those that the policy goes by are asked for in each cycle.
type figures struct {
	client    kubernetes.Interface
	namespace string // of the agents' Leases
	api       bool
	agents    bool
	queries   []string
	source    *deschedule.Prometheus // nil: there is none
	http      *http.Client
	readToken func() ([]byte, error) // of this pod
}

// newFigures finds out which figures a policy goes by.
func newFigures(client kubernetes.Interface, p *deschedule.Policy, namespace string) *figures {
	f := &figures{client: client, namespace: namespace, http: &http.Client{Timeout: requestLimit},
		readToken: tokenOfPod}
	for i := range p.MetricsProviders {
		if m := &p.MetricsProviders[i]; m.Source == deschedule.PrometheusMetrics {
			f.source = m.Prometheus
		}
	}
	used := p.RequiredMetrics()
	f.api, f.agents, f.queries = used.MetricsAPI, used.Agents, used.Queries
	return f
}

// fill adds figures to a snapshot. What cannot be had is absent, and an error says why: strategies
// that go by it end with that.
func (f *figures) fill(ctx context.Context, now time.Time, s *deschedule.Snapshot) (errs []error) {
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if f.api {
		s.NodeUse, s.PodUse = map[string]v1.ResourceList{}, map[string]v1.ResourceList{}
	}
	if f.api {
		note(f.metrics(ctx, s))
	}
	for _, query := range f.queries {
		note(f.prometheus(ctx, now, query, s))
	}
	if f.agents {
		note(f.loads(ctx, s))
	}
	return errs
}

// usage is a NodeMetrics or a PodMetrics of metrics.k8s.io/v1beta1.
type usage struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Usage      v1.ResourceList   `json:"usage"`
		Containers []struct {
			Usage v1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// metrics asks the metrics API.
func (f *figures) metrics(ctx context.Context, s *deschedule.Snapshot) error {
	for _, kind := range []string{"nodes", "pods"} {
		var all usage
		path := "/apis/metrics.k8s.io/v1beta1/" + kind
		body, err := f.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept",
			"application/json").Stream(ctx)
		if err == nil {
			err = json.NewDecoder(io.LimitReader(body, mostMetrics)).Decode(&all)
			_ = body.Close()
		}
		if err != nil {
			return fmt.Errorf("ask the metrics API for %s: %w", kind, err)
		}
		for i := range all.Items {
			item := &all.Items[i]
			if kind == "nodes" {
				s.NodeUse[item.Metadata.Name] = item.Usage
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
			s.PodUse[item.Metadata.Namespace+"/"+item.Metadata.Name] = sum
		}
	}
	return nil
}

// loads reads what the nodes' agents tell.
func (f *figures) loads(ctx context.Context, s *deschedule.Snapshot) error {
	leases, err := f.client.CoordinationV1().Leases(f.namespace).List(ctx,
		metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("read the load of nodes in Leases of %s: %w", f.namespace, err)
	}
	s.Agents = map[string]deschedule.AgentLoad{}
	var wrong error
	for i := range leases.Items {
		l := &leases.Items[i]
		text, ok := l.Annotations[agentapi.LoadAnnotation]
		if !ok {
			continue
		}
		load, err := planner.AgentLoad(text)
		if err != nil {
			wrong = fmt.Errorf("read the load of node %s: %w", l.Name, err)
			continue
		}
		s.Agents[l.Name] = load
	}
	return wrong
}

// answer is Prometheus' to an instant query (prometheus.io/docs/prometheus/latest/querying/api).
type answer struct {
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

// prometheus asks one query, which gives a share from 0 to 1 for each node, by its label instance.
func (f *figures) prometheus(ctx context.Context, now time.Time, query string,
	s *deschedule.Snapshot) error {
	if f.source == nil {
		return fmt.Errorf("ask Prometheus: the policy's metricsProviders have none")
	}
	wrong := func(err error) error { return fmt.Errorf("ask Prometheus %s: %w", f.source.URL, err) }
	at := strings.TrimSuffix(f.source.URL, "/") + "/api/v1/query?" +
		url.Values{"query": {query}, "time": {strconv.FormatInt(now.Unix(), 10)}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return wrong(err)
	}
	token, err := f.token(ctx)
	if err != nil {
		return wrong(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := f.http.Do(request)
	if err != nil {
		return wrong(err)
	}
	defer func() { _ = response.Body.Close() }()
	var a answer
	if err := json.NewDecoder(io.LimitReader(response.Body, mostPrometheus)).Decode(&a); err != nil {
		return wrong(fmt.Errorf("%s: %w", response.Status, err))
	}
	if a.Status != "success" || a.Data.Type != "vector" {
		return wrong(fmt.Errorf("%s: status %q, type %q: %s: want a vector", response.Status, a.Status,
			a.Data.Type, a.Error))
	}
	told := make(map[string]int64, len(a.Data.Result))
	if s.Queried == nil {
		s.Queried = map[string]map[string]int64{}
	}
	s.Queried[query] = told
	for _, r := range a.Data.Result {
		node, text := r.Metric["instance"], fmt.Sprint(r.Value[1])
		share, err := strconv.ParseFloat(text, 64)
		if node == "" || err != nil || !(share >= 0 && share <= 1) {
			return wrong(fmt.Errorf("instance %q has %s: want a share from 0 to 1", node, text))
		}
		told[node] = int64(share * 100)
	}
	return nil
}

// token is the one that Prometheus wants: of a secret, or this pod's; empty: none.
func (f *figures) token(ctx context.Context) (string, error) {
	if f.source.AuthToken == nil {
		text, err := f.readToken()
		if err != nil || !strings.HasPrefix(f.source.URL, "https://") {
			return "", nil // outside of a cluster there is none, and in clear it is told to nobody
		}
		return strings.TrimSpace(string(text)), nil
	}
	of := f.source.AuthToken.SecretReference
	secret, err := f.client.CoreV1().Secrets(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the secret of its token: %w", err)
	}
	token, ok := secret.Data["prometheusAuthToken"] // pkg/descheduler/runner.go, 0.36.0
	if !ok {
		return "", fmt.Errorf("secret %s/%s has no key prometheusAuthToken", of.Namespace, of.Name)
	}
	return strings.TrimSpace(string(token)), nil
}
