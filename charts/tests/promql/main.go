// promql judges alert expressions as Prometheus would: it reads cases as JSON from standard input, each with series in
// the notation of Prometheus' own tests ("load 1m\n  metric{label="x"} 0+1x10"), an expression and a moment in seconds,
// and writes for each the labels and values that the expression gives there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

type question struct {
	Series  string  `json:"series"`
	Expr    string  `json:"expr"`
	Seconds float64 `json:"seconds"`
}

type sample struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

func main() {
	var questions []question
	if err := json.NewDecoder(os.Stdin).Decode(&questions); err != nil {
		fail(err)
	}
	answers := make([][]sample, 0, len(questions))
	for _, asked := range questions {
		found, err := answer(asked)
		if err != nil {
			fail(fmt.Errorf("%s: %w", asked.Expr, err))
		}
		answers = append(answers, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

func answer(asked question) ([]sample, error) {
	loader, err := promqltest.NewLazyLoader(asked.Series, promqltest.LazyLoaderOpts{})
	if err != nil {
		return nil, err
	}
	defer loader.Close()
	at := time.Unix(0, 0).Add(time.Duration(asked.Seconds * float64(time.Second))).UTC()
	var failure error
	loader.WithSamplesTill(at, func(err error) { failure = err })
	if failure != nil {
		return nil, failure
	}
	query, err := loader.QueryEngine().NewInstantQuery(context.Background(), loader.Queryable(), nil, asked.Expr, at)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	if err != nil {
		return nil, fmt.Errorf("gives %s, an alert needs a vector", result.Value.Type())
	}
	return samples(vector), nil
}

func samples(vector promql.Vector) []sample {
	found := make([]sample, 0, len(vector))
	for _, each := range vector {
		found = append(found, sample{Labels: each.Metric.Map(), Value: each.F})
	}
	return found
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
