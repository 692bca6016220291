/* The steps of a scheduler and their interleavings: two tasks, two processes that die, calls that overtake each other.

   What is durable and what is volatile are apart, and a crash can come between any two steps. A start is decided, put into
   a batch, written, acknowledged, called; an end likewise. The trace (on_XX) is written by the very step that makes rows
   durable. Registers and checks are generated from duly.formal.properties (registers.pml); S3 and E2 are here, by hand.

   Time is abstract: a due minute, a ripe retry, the end of a rest come whenever Env says so. What comes between a decision
   and its commit is later than the start, whose stamp is that of the decision (SPEC 3.9): it is `late`.

   From the environment: MUTANT (0: none; the list is at the end), WAITS (interrupted="wait"), CRASHES, STOPS, INITS. */

#define N 2
c_decl { \#include <stdlib.h>
         static int given(const char *name, int otherwise) { char *value = getenv(name); return value ? atoi(value) : otherwise; } }
#define S1 1
#define S2 2
#define S3 3
#define S4 4
#define S5 5
#define S5plus 6
#define S6a 7
#define S6b 8
#define E2 9
#define EW 10
#define check(holds, id) if :: (holds) :: else -> printf("VIOLATED %d\n", id); assert(false) fi
byte mutant, crashes, stopsLeft, initsLeft; bool waits;
#include "registers.pml"

/* durable: the rows, and facts of the clock about them */
bool row[N];            /* declared; its configuration */
bool cfg[N];
bool pend[N];           /* a due minute after the mark */
byte retry[N];          /* 0 none, 1 armed, 2 ripe; kept while a run goes on */
bool ran[N];            /* a run without an end */
bool streak[N];         /* that run came after an interruption */
bool rested[N];         /* an interrupted run may start again */
/* volatile */
bool up, lp;            /* a process; its loop */
byte openStops, nSS;    /* calls of stop that have not returned; those of them not yet on record */
byte head, next, last, waiting;         /* calls in their order: 0 stop, 1 {0,1}, 2 {0',1}, 3 {1} */
byte pc[N];             /* 0 idle, 1 decided, 2 in the batch, 3 running, 4 returned, 5 its end in the batch */
bool own[N], ok[N], late[N];
bool batch, applied; byte bSS;          /* the journal */
bool asked, changing;   /* a re-initialisation waits for the lock; is durable, and not yet in force */
/* ghosts of S3: a due period since the last good start, since the present start, at the present start */
bool gD[N], gE[N], gFresh[N];
bool gRow[N];           /* the run began after an interruption, as the trace has it */

#define interrupted(x) (ran[x] && pc[x] == 0)
#define owes(x) (pend[x] || (retry[x] == 2 && (!interrupted(x) || waits)) || (interrupted(x) && !waits && (rested[x] || mutant == 11)))
#define free(x) (pc[x] == 0 || (mutant == 10 && !own[x] && pc[x] == 3))
#define undecided (pc[0] != 1 && pc[0] != 2 && pc[1] != 1 && pc[1] != 2)
#define quiescent (pc[0] == 0 && pc[1] == 0)

inline call(kind) { if :: waiting == 0 -> head = kind :: waiting == 1 -> next = kind :: waiting == 2 -> last = kind fi; waiting++ }
inline over() { head = next; next = last; last = 0; waiting-- }
inline due(x)    { printf("Due %d\n", x); on_Due(x); gD[x] = 1; gE[x] = 1; if :: row[x] -> pend[x] = 1 :: else fi }
inline started(x) {
  if :: late[x] && mutant == 7 -> printf("Due %d\n", x); on_Due(x); gD[x] = 1 :: else fi;
  printf("RS %d\n", x); gRow[x] = mInterrupted[x]; on_RS(x, 0); gFresh[x] = gD[x]; gE[x] = 0;
  /* the row, of the same stamp */
  streak[x] = ran[x] && mutant != 12; ran[x] = 1; pend[x] = 0; rested[x] = 0;
  if :: mutant == 5 -> retry[x] = 0 :: else fi;
  if :: late[x] -> late[x] = 0; if :: mutant == 7 -> pend[x] = 1 :: else -> due(x) fi :: else fi }
inline ended(x) {
  printf("RE %d ok=%d own=%d\n", x, ok[x], own[x]); check(mRunning[x] && (own[x] == mOwnRun[x]), E2);
  if :: own[x] && ok[x] -> check(gFresh[x], S3); on_REs(x); gD[x] = gE[x]; retry[x] = 0
     :: own[x] && !ok[x] -> on_REf(x); retry[x] = (mutant != 3)
     :: !own[x] && !ok[x] && mutant == 9 && row[x] -> on_REold(x); retry[x] = 1
     :: else -> on_REold(x) fi;
  if :: own[x] -> ran[x] = 0; streak[x] = 0; gRow[x] = 0 :: else fi }
/* The first interruption in a row is owed at once: so says the row, and so, on its own account, the checker. */
inline resumes(x) {
  if :: interrupted(x) && !waits && !streak[x] -> rested[x] = 1 :: else fi;
  if :: mInterrupted[x] && !gRow[x] -> printf("Resume %d\n", x); on_Resume(x) :: else fi }
inline withdrawn(x) { own[x] = 0; ran[x] = 0; retry[x] = 0; rested[x] = 0; streak[x] = 0; pend[x] = 0 }
inline declare(x, wanted, c) {
  if :: wanted && row[x] && cfg[x] == c -> skip
     :: wanted && !(row[x] && cfg[x] == c) -> printf("RG %d\n", x); on_First(x); gD[x] = 1; gE[x] = 1; gRow[x] = 0;
        withdrawn(x); row[x] = 1; cfg[x] = c; if :: mutant == 4 -> pend[x] = 1 :: else fi
     :: !wanted && row[x] -> printf("RG %d orphaned\n", x); on_Gone(x); withdrawn(x); row[x] = 0; cfg[x] = 0
     :: else fi }
inline resolve(kind) { declare(0, (kind != 3), (kind == 2)); declare(1, 1, 0) }
inline fall(x) {
  /* a retry whose run was cut short is owed at its instant again; whether that has come, the clock says anew */
  if :: mOwnRun[x] && retry[x] == 2 && waits -> retry[x] = 1 :: ran[x] && !waits -> retry[x] = 0 :: else fi;
  on_Crash_task(x); pc[x] = 0; own[x] = 0; ok[x] = 0;
  if :: late[x] -> late[x] = 0; due(x) :: else fi;
  if :: mutant == 6 && ran[x] && row[x] -> ran[x] = 0; retry[x] = 1 :: else fi }
inline withdraw(x) { if :: pc[x] == 1 -> pc[x] = 0; if :: late[x] -> late[x] = 0; due(x) :: else fi :: else fi }

proctype Env() {
  do
  :: atomic { !mPending[0] || !gD[0] || !gE[0] -> if :: pc[0] == 1 || pc[0] == 2 -> late[0] = 1 :: else -> due(0) fi }
  :: atomic { !mPending[1] || !gD[1] || !gE[1] -> if :: pc[1] == 1 || pc[1] == 2 -> late[1] = 1 :: else -> due(1) fi }
  :: atomic { (retry[0] == 1 || (mFailed[0] && !mRetryPending[0])) && !mRunning[0] ->   /* in the row; in the trace */
       if :: retry[0] == 1 -> retry[0] = 2 :: else fi; printf("RetryDue 0\n"); on_RetryDue(0) }
  :: atomic { interrupted(0) && lp && !waits && !rested[0] -> rested[0] = 1; printf("Resume 0\n"); on_Resume(0) }
  :: atomic { interrupted(1) && lp && !waits && !rested[1] -> rested[1] = 1; printf("Resume 1\n"); on_Resume(1) }
  :: atomic { up && crashes > 0 -> crashes--; printf("Crash\n");
       if :: lp -> on_Crash(); fall(0); fall(1) :: else fi;
       up = 0; lp = 0; openStops = 0; nSS = 0; bSS = 0; batch = 0; applied = 0; asked = 0; changing = 0;
       head = 0; next = 0; last = 0; waiting = 0 }
  od }

proctype App() { byte kind;
  do
  :: atomic { !up -> up = 1 }
  :: atomic { up && !lp && waiting == 0 -> select(kind : 1 .. 3); printf("initialize %d\n", kind); call(kind); kind = 0 }
  :: atomic { up && waiting < 3 && initsLeft > 0 && (lp || waiting > 0) -> initsLeft--; select(kind : 1 .. 3);
       printf("initialize %d\n", kind); call(kind); kind = 0 }
  :: atomic { up && waiting < 3 && stopsLeft > 0 && (lp || waiting > 0) -> stopsLeft--; printf("stop\n");
       call(0); openStops++; if :: lp -> nSS++ :: else fi }
  od }

/* One call after the other. */
proctype Turn() {
  do
  :: atomic { up && !lp && waiting > 0 && head != 0 ->
       printf("BT IS IE %d\n", head); resolve(head); on_IE(); resumes(0); resumes(1); over();
       lp = 1; nSS = (waiting > 0 && head == 0) + (waiting > 1 && next == 0) + (waiting > 2 && last == 0) }
  :: atomic { lp && waiting > 0 && head != 0 && !changing && !asked -> asked = 1 }   /* queues for the lock */
  :: atomic { lp && asked && undecided && nSS == 0 && bSS == 0 ->
       /* nothing is decided meanwhile, and the calls made so far are on record */
       printf("IE %d\n", head); resolve(head); on_IE(); asked = 0; changing = 1; over() }
  :: atomic { lp && changing -> changing = 0 }
  :: atomic { lp && waiting > 0 && head == 0 && !changing && nSS == 0 && bSS == 0 && (mutant == 1 || (quiescent && !batch)) ->
       printf("SE\n"); check(mStopping, EW); on_SE_task(0); on_SE_task(1); on_SE(1); over(); lp = 0;
       openStops = (mutant == 13 -> 0 : openStops - 1) }
  :: atomic { up && !lp && waiting > 0 && head == 0 -> over(); if :: openStops > 0 -> openStops-- :: else fi }
  od }

/* Group commit: ends, what was noted, starts. */
proctype Journal() {
  do
  :: atomic { lp && !batch && (pc[0] == 1 || pc[1] == 1 || pc[0] == 4 || pc[1] == 4 || nSS > 0) ->
       if :: openStops > 0 && mutant != 2 -> withdraw(0); withdraw(1) :: else fi;
       if :: pc[0] == 1 -> pc[0] = 2 :: pc[0] == 4 -> pc[0] = 5 :: else fi;
       if :: pc[1] == 1 -> pc[1] = 2 :: pc[1] == 4 -> pc[1] = 5 :: else fi;
       bSS = nSS; nSS = 0; batch = (pc[0] == 2 || pc[0] == 5 || pc[1] == 2 || pc[1] == 5 || bSS > 0); applied = 0 }
  :: atomic { lp && batch && (!applied || mutant == 8) -> applied = 1;
       if :: pc[0] == 5 -> ended(0) :: else fi; if :: pc[1] == 5 -> ended(1) :: else fi;
       do :: bSS > 0 -> bSS--; printf("SS\n"); on_SS() :: else -> break od;
       if :: pc[0] == 2 -> started(0) :: else fi; if :: pc[1] == 2 -> started(1) :: else fi }
  :: atomic { lp && batch && applied -> batch = 0; applied = 0;      /* durable, and now it is known to be */
       if :: pc[0] == 2 -> pc[0] = 3; own[0] = 1 :: pc[0] == 5 -> pc[0] = 0; ok[0] = 0; own[0] = 0 :: else fi;
       if :: pc[1] == 2 -> pc[1] = 3; own[1] = 1 :: pc[1] == 5 -> pc[1] = 0; ok[1] = 0; own[1] = 0 :: else fi }
  od }

proctype Task(byte x) {
  do
  :: atomic { lp && (openStops == 0 || mutant == 2) && !changing && (!asked || mutant == 14) && row[x] && free(x) && owes(x) -> pc[x] = 1 }
  :: atomic { pc[x] == 3 -> if :: ok[x] = 1 :: x == 0 -> ok[x] = 0 fi; pc[x] = 4 }
  od }

init { atomic {
  c_code { now.mutant = given("MUTANT", 0); now.waits = given("WAITS", 0); now.crashes = given("CRASHES", 2);
           now.stopsLeft = given("STOPS", 2); now.initsLeft = given("INITS", 1); };
  run Env(); run App(); run Turn(); run Journal(); run Task(0); run Task(1) } }

#ifdef LIVE
#define obliged0 OBLIGED(0)
#define stopping mStopping
#define calling (waiting > 0)
ltl L1 { [] (obliged0 -> <> !obliged0) }
ltl L2 { [] (stopping -> <> !stopping) }
ltl L3 { [] (calling -> <> !calling) }
#endif

/* Mutants, and what finds them:
    1 a stop does not wait for runs                      S5plus
    2 a start goes on although a stop was called         S2
    3 a failure is not stored                            L1
    4 minutes before the first declaration are owed      S2
    5 WAITS, and the retry is forgotten at the start     L1
    6 an interrupted run has failed                      S2 with WAITS, L1 without
    7 the event is apart from the row, and stamped later S2
    8 a repeated write is applied again                  S1
    9 an end of an old declaration arms the new one      S2
   10 nobody waits for a run of the old declaration      S1
   11 an interrupted run never has to rest               S2
   12 interruptions in a row are not counted             S2
   13 one stop that completes ends them all              S2
   14 the lock does not queue those who wait for it      L3 */
