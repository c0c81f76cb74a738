package kube

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A list continues with the token that the server returns for an expired one, and ends.
func TestExpiredContinueToken(t *testing.T) {
	for name, c := range map[string]struct {
		places map[string]string // by continue token: the page and the next token, or 410 and the new token
		want   string
		failed bool
	}{
		"in one":             {map[string]string{"": "a b"}, "a b", false},
		"page by page":       {map[string]string{"": "a >1", "1": "b >2", "2": "c"}, "a b c", false},
		"new token":          {map[string]string{"": "a >1", "1": "410 >x", "x": "b"}, "a b", false},
		"no new token":       {map[string]string{"": "a >1", "1": "410"}, "a", true},
		"first page":         {map[string]string{"": "410 >1"}, "", true},
		"new token expired":  {map[string]string{"": "a >1", "1": "410 >x", "x": "410 >x"}, "a", true},
		"two tokens expired": {map[string]string{"": "a >1", "1": "410 >x", "x": "b >2", "2": "410 >y", "y": "c"}, "a b c", false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			place := r.URL.Query().Get("continue")
			items, more, _ := strings.Cut(c.places[place], ">")
			list := v1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: more}}
			for _, name := range strings.Fields(items) {
				if name == "410" {
					w.WriteHeader(http.StatusGone)
					_ = json.NewEncoder(w).Encode(metav1.Status{
						TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, ListMeta: list.ListMeta, Status: "Failure", Code: 410,
						Reason: metav1.StatusReasonExpired,
					})
					return
				}
				list.Items = append(list.Items, v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			_ = json.NewEncoder(w).Encode(list)
		}))
		client, err := New(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "test")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		err = client.EachNode(t.Context(), func(n *v1.Node) error { got = append(got, n.Name); return nil })
		if (err != nil) != c.failed || !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%s: nodes %v, error %v, want %s, failure %v", name, got, err, c.want, c.failed)
		}
		s.Close()
	}
}
