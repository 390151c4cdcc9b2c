#!/bin/bash
# Whether a test is worse under the preload: crates/nearq-preload/tests/suites/verdict.sh WITH WITHOUT RUNS
#
# WITH and WITHOUT are how many of RUNS runs on each side failed, after a first run with the preload had failed, which is not counted: it is
# why the test was chosen. Prints one of these:
#
# again   more runs are needed: there are 100 on each side at most.
# wrong   it is worse. If the preload made no difference, a difference as large as this would be seen in less than one case of 1000 (after
#         any number of runs) or of 20 (after 100): Fisher's exact test, one-sided. Or, after 100 runs: it failed again with the
#         preload, and never without.
# flaky   it fails without the preload as well, and no less often as far as can be measured.
# once    it did not fail again. A test that fails in more than 3 of 100 runs does that with a probability of 5 % at most.
set -eu
awk -v with="$1" -v without="$2" -v runs="$3" '
    # The logarithm of how many ways there are to choose.
    function ways(of, chosen,    sum, i) {
        for (i = 1; i <= chosen; i++)
            sum += log(of - chosen + i) - log(i)
        return sum
    }

    BEGIN {
        all = with + without
        for (failed = with; failed <= all && failed <= runs; failed++)
            if (all - failed <= runs)
                p += exp(ways(runs, failed) + ways(runs, all - failed) - ways(2 * runs, all))
        last = runs >= 100
        if (p < 0.001 || last && (p < 0.05 || with > 0 && without == 0))
            print "wrong"
        else if (without >= with && without >= 2)
            print "flaky"
        else if (!last)
            print "again"
        else
            print (all > 0 ? "flaky" : "once")
    }'
