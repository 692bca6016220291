/* Written by formal/generate.py from duly.formal.properties; do not edit. */
bool mActive, mQuiet, mSinceS6a, mStopping;
bool mFailed[N], mInterrupted[N], mOwnRun[N], mPending[N], mRegistered[N], mRested[N], mRetryPending[N], mRunning[N], mSinceS6b[N];
#define OBLIGED(x) (((mActive && mRegistered[x]) && !mRunning[x]) && ((mPending[x] || mRetryPending[x]) || (mInterrupted[x] && mRested[x])))
inline on_Due(x) {
  mPending[x] = 1;
}
inline on_RetryDue(x) {
  mRetryPending[x] = ((mFailed[x] && !mRunning[x]) || mRetryPending[x]);
}
inline on_Resume(x) {
  mRested[x] = 1;
}
inline on_First(x) {
  mRegistered[x] = 1;
  mPending[x] = 0;
  mOwnRun[x] = 0;
  mFailed[x] = 0;
  mRetryPending[x] = 0;
  mInterrupted[x] = 0;
  mRested[x] = 0;
}
inline on_Gone(x) {
  mRegistered[x] = 0;
  mPending[x] = 0;
  mOwnRun[x] = 0;
  mFailed[x] = 0;
  mRetryPending[x] = 0;
  mInterrupted[x] = 0;
}
inline on_RS(x, stale) {
  check(!mRunning[x], S1);
  check((!stale && ((mActive && mRegistered[x]) && ((mPending[x] || mRetryPending[x]) || (mInterrupted[x] && mRested[x])))), S2);
  check(!mQuiet, S4);
  check(!mSinceS6a, S6a);
  mRunning[x] = 1;
  mPending[x] = 0;
  mOwnRun[x] = 1;
  mRetryPending[x] = 0;
  mInterrupted[x] = 0;
  mRested[x] = 0;
  mSinceS6b[x] = 0;
}
inline on_REs(x) {
  check(!mQuiet, S5);
  check(!mSinceS6b[x], S6b);
  mRunning[x] = 0;
  mOwnRun[x] = 0;
  mFailed[x] = 0;
}
inline on_REf(x) {
  check(!mQuiet, S5);
  check(!mSinceS6b[x], S6b);
  mRunning[x] = 0;
  mOwnRun[x] = 0;
  mFailed[x] = 1;
}
inline on_REold(x) {
  check(!mQuiet, S5);
  check(!mSinceS6b[x], S6b);
  mRunning[x] = 0;
  mOwnRun[x] = 0;
}
inline on_IE_task(x) {
  skip;
}
inline on_IE() {
  mActive = (!mStopping || mActive);
  mQuiet = 0;
  mSinceS6a = 0;
}
inline on_SS_task(x) {
  skip;
}
inline on_SS() {
  mStopping = 1;
  mActive = 0;
}
inline on_SE_task(x) {
  check(!mRunning[x], S5plus);
}
inline on_SE(settled) {
  mStopping = (mStopping && !settled);
  mActive = 0;
  mQuiet = 1;
}
inline on_Crash_task(x) {
  mRunning[x] = 0;
  mFailed[x] = (mFailed[x] && !(mOwnRun[x] && !waits));
  mInterrupted[x] = ((mOwnRun[x] && !waits) || mInterrupted[x]);
  mRested[x] = (mRested[x] && !mOwnRun[x]);
  mOwnRun[x] = 0;
  mSinceS6b[x] = 1;
}
inline on_Crash() {
  mStopping = 0;
  mActive = 0;
  mSinceS6a = 1;
}
